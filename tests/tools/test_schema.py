import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import ToolDefinitionError
from harness.tools import ArgIssue, ArgsInvalid
from harness.tools._schema import check_object_schema


@given(st.lists(st.tuples(st.text(max_size=900), st.text(max_size=900)), max_size=40))
def test_the_text_of_a_refusal_is_bounded(places: list[tuple[str, str]]) -> None:
    refused = ArgsInvalid([ArgIssue(path=(path,), message=what) for path, what in places])
    assert len(str(refused)) <= 2_000
    assert len(refused.issues) == len(places)


def test_a_text_that_is_cut_says_how_much_is_left() -> None:
    refused = ArgsInvalid([ArgIssue(path=("x",), message="y" * 500)] * 9)
    assert str(refused).endswith("…; and 5 more")


def test_a_refusal_survives_pickling() -> None:
    refused = ArgsInvalid([ArgIssue(path=("a", 1), message="wrong")])
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.issues) == ("a.1: wrong", refused.issues)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, "its schema has the type None, expected a JSON Schema of type 'object'"),
        ({}, "its schema has the type None, expected .*"),
        ({"type": "array"}, "its schema has the type 'array', expected .*"),
        ({"type": ["object", "null"]}, r"its schema has the type \['object', 'null'\], .*"),
        ({"type": "object", "x": (1,)}, "its schema is not JSON at x: tuple is no JSON type"),
    ],
)
def test_a_schema_that_is_not_of_an_object_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"^'tool' cannot be a tool: {reason}$"):
        check_object_schema("tool", schema)
    check_object_schema("tool", {"type": "object"})
