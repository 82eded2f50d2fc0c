import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._bounds import check_amount, check_count, check_instant, check_seconds

REAL_CHECKS: list[Callable[[str, object], float]] = [check_seconds, check_amount, check_instant]


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize("value", [True, False, None, "1", 1j, [1]])
def test_what_is_no_number_is_a_type_error_that_names_the_parameter(value: object) -> None:
    for check in (*REAL_CHECKS, check_count):
        with pytest.raises(TypeError) as caught:
            check("patience", value)
        assert str(caught.value).startswith(f"patience is {value!r}, expected ")


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (check_seconds, math.nan, "seconds that are not negative"),
        (check_seconds, -1, "seconds that are not negative"),
        (check_seconds, -5e-324, "seconds that are not negative"),
        (check_seconds, -math.inf, "seconds that are not negative"),
        (check_seconds, math.inf, "a finite number of seconds"),
        (check_amount, math.nan, "a finite number that is not negative"),
        (check_amount, -0.5, "a finite number that is not negative"),
        (check_amount, math.inf, "a finite number that is not negative"),
        (check_count, -1, "at least 0"),
        (check_instant, math.nan, "a trio time"),
    ],
)
def test_a_number_out_of_bounds_is_a_value_error_that_names_the_parameter(
    check: Callable[[str, object], float], value: float, expected: str
) -> None:
    with pytest.raises(ValueError, match=rf"^patience is {value!r}, expected {expected}$"):
        check("patience", value)


@pytest.mark.rule("R-GEN-06")
def test_zero_infinity_and_the_least_count_are_for_the_caller_to_say() -> None:
    assert check_seconds("patience", 0) == 0
    with pytest.raises(ValueError, match=r"^patience is 0, expected seconds that are positive$"):
        check_seconds("patience", 0, zero=False)
    assert check_seconds("patience", math.inf, infinite=True) == math.inf
    with pytest.raises(ValueError, match=r"^patience is nan, "):
        check_seconds("patience", math.nan, infinite=True)
    assert check_count("tries", 1, least=1) == 1
    with pytest.raises(ValueError, match=r"^tries is 0, expected at least 1$"):
        check_count("tries", 0, least=1)
    with pytest.raises(TypeError, match=r"^tries is 1\.0, expected an int$"):
        check_count("tries", 1.0)


@pytest.mark.rule("R-GEN-06")
def test_a_point_in_time_may_be_past_and_may_be_never() -> None:
    assert check_instant("deadline", -3) == -3
    assert check_instant("deadline", math.inf) == math.inf
    assert check_instant("deadline", -math.inf) == -math.inf


@pytest.mark.rule("R-GEN-06")
def test_an_integer_that_no_float_can_hold_is_out_of_bounds() -> None:
    for check in REAL_CHECKS:
        with pytest.raises(ValueError, match=r"^patience is too large, expected "):
            check("patience", 10**400)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False) | st.integers(0, 2**60))
def test_what_is_within_bounds_comes_back_as_it_was(number: float) -> None:
    for check in REAL_CHECKS:
        checked = check("patience", number)
        assert type(checked) is float
        assert checked == float(number)
    if isinstance(number, int):
        assert check_count("tries", number) is number
