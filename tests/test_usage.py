import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._usage import Usage

counts = st.integers(0, 2**40)
usages = st.builds(
    Usage,
    input=counts,
    cached_input=counts,
    output=counts,
    cost_cents=st.floats(0, 1e6),
)


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize("field", ["input", "cached_input", "output"])
@pytest.mark.parametrize(
    ("value", "error"), [(True, TypeError), (1.0, TypeError), (-1, ValueError)]
)
def test_tokens_are_counts(field: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"^Usage\.{field} is {value!r}, expected "):
        Usage(**{field: value})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (True, TypeError),
        ("1", TypeError),
        (-0.1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
    ],
)
def test_the_cost_is_a_finite_amount(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"^Usage\.cost_cents is {value!r}, expected "):
        Usage(cost_cents=value)  # type: ignore[arg-type]  # wrong on purpose


def test_a_stored_usage_is_checked_like_a_new_one() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Usage\.output is -1"):
        msgspec.json.decode(b'{"output":-1}', type=Usage)


@given(usages, usages)
def test_usages_add_up_field_by_field(a: Usage, b: Usage) -> None:
    total = a + b
    for field in Usage.__struct_fields__:
        assert getattr(total, field) == getattr(a, field) + getattr(b, field)
    assert total.tokens == a.tokens + b.tokens == total.input + total.output
    assert a + Usage() == a


@given(usages)
def test_a_usage_goes_through_json_and_back(usage: Usage) -> None:
    assert msgspec.json.decode(msgspec.json.encode(usage), type=Usage) == usage
