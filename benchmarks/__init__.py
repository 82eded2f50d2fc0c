"""What the kernel costs, as ratios to raw trio doing the same work in the same process."""
