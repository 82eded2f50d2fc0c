"""``python -m benchmarks [--quick]``."""

from __future__ import annotations

import argparse
import platform

import trio

from benchmarks import bench_abort, bench_turns

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few samples: to see that it runs")
options = parser.parse_args()
samples = 3 if options.quick else 25
print(
    f"Python {platform.python_version()}, trio {trio.__version__}, {platform.machine()}; "
    "ratio of thread CPU time to raw trio: median [quartiles]"
)
for module in (bench_turns, bench_abort):
    for figure in module.figures(samples=samples):
        print(figure)
