import math

import pytest

from harness._chain import ChainRef
from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease

KEY = RunKey(tenant="t", run_id="r")
CALL = ReceiptKey(tenant="t", run_id="r", tool="pay", args_hash="h")


@pytest.mark.parametrize("value", ["", None, 1, "a\x00b", "\ud800"])
def test_a_name_in_a_store_is_a_text_that_every_database_takes(value: object) -> None:
    names: dict[str, object] = {"tenant": "t", "run_id": "r", "tool": "pay", "args_hash": "h"}
    for name in names:
        expected = rf"^ReceiptKey\.{name} is .*, expected a text"
        with pytest.raises(ValueError, match=expected):
            ReceiptKey(**{**names, name: value})  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match=r"^RunKey\.run_id is .*, expected a text"):
        RunKey(tenant="t", run_id=value)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("value", [-1, True, 1.0, None, 2**63])
def test_counts_and_lengths_are_checked(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^ReceiptKey\.occurrence is "):
        ReceiptKey(tenant="t", run_id="r", tool="pay", args_hash="h", occurrence=value)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises((TypeError, ValueError), match=r"^RunLease\.fence is "):
        RunLease(key=KEY, owner="a", fence=value, seconds=1)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises((TypeError, ValueError), match=r"^ReceiptClaim\.attempt is "):
        ReceiptClaim(key=CALL, attempt=value, owner="a", seconds=1)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("value", [-1, True, 1.0, None])
def test_a_depth_is_a_count(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^ChainRef\.depth is "):
        ChainRef(root_run_id="r", run_id="r", depth=value)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, True, "1"])
def test_a_lease_lasts_for_finite_seconds(seconds: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^RunLease\.seconds is "):
        RunLease(key=KEY, owner="a", fence=1, seconds=seconds)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises((TypeError, ValueError), match=r"^ReceiptClaim\.seconds is "):
        ReceiptClaim(key=CALL, attempt=1, owner="a", seconds=seconds)  # type: ignore[arg-type]  # wrong on purpose
