"""What a reply says about its consumption."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._json import JSON
from harness._usage import Usage
from harness.providers._usage import read_usage


@pytest.mark.rule("R-PROV-13")
@pytest.mark.parametrize(
    ("value", "usage"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2}, Usage(input=3, output=2)),
        ({"prompt_tokens": 3}, Usage(input=3)),
        ({"completion_tokens": 2, "prompt_tokens": None}, Usage(output=2)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            Usage(input=9, cached_input=4, output=1),
        ),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 5}, Usage(input=9, cached_input=5)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, Usage(input=9)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": "4"}},
            Usage(input=9),
        ),
        (
            {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
            Usage(input=3, cached_input=3),
        ),
        ({"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.5}, Usage(input=3, output=2)),
    ],
)
def test_counts_are_read(value: JSON, usage: Usage) -> None:
    assert read_usage(value) == usage


@pytest.mark.rule("R-PROV-13")
@pytest.mark.parametrize("broken", [-1, "3", 2.5, True, [], {}, 10**30])
def test_a_count_that_is_none_takes_the_usage_with_it(broken: JSON) -> None:
    assert read_usage({"prompt_tokens": 3, "completion_tokens": broken}) is None
    assert read_usage({"prompt_tokens": broken, "completion_tokens": 3}) is None


@pytest.mark.rule("R-PROV-13")
@pytest.mark.parametrize("value", [None, {}, [], "usage", 3, {"total_tokens": 5}])
def test_no_counts_are_no_usage(value: JSON) -> None:
    assert read_usage(value) is None


KEYS = st.sampled_from(
    [
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "cached_tokens",
        "prompt_cache_hit_tokens",
    ]
)
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_is_a_usage_or_none(value: JSON) -> None:
    usage = read_usage(value)
    assert usage is None or 0 <= usage.cached_input <= usage.input
