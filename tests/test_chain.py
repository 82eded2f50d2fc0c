from harness._chain import ChainRef


def test_a_root_is_at_depth_nought_and_below_nobody() -> None:
    chain = ChainRef(root_run_id="r", run_id="r")
    assert (chain.depth, chain.parent_run_id, chain.path) == (0, None, ())
