"""Between records and JSON values: what is told of a field that does not fit."""

from typing import Any

import attrs
import pytest
from hypothesis import given

from harness import JSON, Limits, Pause, Suspend, Usage
from harness.checkpoints._converter import from_json, to_json
from harness.errors import RecordError
from harness.kernel import RunStats, ToolStats
from tests.checkpoints.examples import NIGHT
from tests.strategies import json_values, names


@attrs.frozen(kw_only=True)
class Room:
    """One of everything that a record may hold."""

    name: str
    beds: int = 1
    price: float = 0.0
    open: bool = True
    tags: tuple[str, ...] = ()
    guests: dict[str, int] = attrs.field(factory=dict)
    above: Limits | None = None
    usage: Usage = attrs.field(factory=Usage)
    note: JSON = None


FULL: JSON = {
    "name": "attic",
    "beds": 2,
    "price": 9.5,
    "open": False,
    "tags": ["quiet"],
    "guests": {"a @ $.b": 1},
    "above": {"turns": 1, "tool_calls": None, "tokens": None, "cost_cents": None},
    "usage": {"input": 1, "cached_input": 0, "output": 0, "cost_cents": 0.5},
    "note": [1, 1.0, None],
}
ROOM = Room(
    name="attic",
    beds=2,
    price=9.5,
    open=False,
    tags=("quiet",),
    guests={"a @ $.b": 1},
    above=Limits(turns=1),
    usage=Usage(input=1, cost_cents=0.5),
    note=[1, 1.0, None],
)


def test_a_record_goes_there_and_back() -> None:
    assert to_json(ROOM) == FULL
    assert from_json(FULL, Room) == ROOM


def test_a_whole_number_is_an_amount_and_becomes_one() -> None:
    room = from_json({**FULL, "price": 9}, Room)  # type: ignore[dict-item]
    assert repr(room.price) == "9.0"


@given(json_values)
def test_what_is_the_hosts_goes_through_as_it_is_and_is_copied(note: JSON) -> None:
    room = Room(name="attic", note=note)
    value: Any = to_json(room)
    assert repr(value["note"]) == repr(note)
    assert repr(from_json(value, Room).note) == repr(note)
    if isinstance(note, dict | list):
        assert value["note"] is not note
        assert from_json(value, Room).note is not value["note"]


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"name": 1}, "$.name", "it is 1, expected a text"),
    ({"name": type("Text", (str,), {})("x")}, "$.name", "it is 'x', expected a text"),
    ({"name": None}, "$.name", "it is None, expected a text"),
    ({"beds": True}, "$.beds", "it is True, expected a whole number that is not negative"),
    ({"beds": 1.0}, "$.beds", "it is 1.0, expected a whole number that is not negative"),
    ({"price": -0.5}, "$.price", "it is -0.5, expected a number that is not negative"),
    ({"price": "9"}, "$.price", "it is '9', expected a number that is not negative"),
    ({"price": False}, "$.price", "it is False, expected a number that is not negative"),
    ({"price": float("nan")}, "$.price", "it is nan, expected a number that is not negative"),
    ({"price": float("inf")}, "$.price", "it is inf, expected a number that is not negative"),
    ({"open": 0}, "$.open", "it is 0, expected true or false"),
    ({"tags": "quiet"}, "$.tags", "it is 'quiet', expected a list"),
    ({"tags": {"quiet": 1}}, "$.tags", "it is {'quiet': 1}, expected a list"),
    ({"tags": ["a", 1]}, "$.tags[1]", "it is 1, expected a text"),
    ({"guests": []}, "$.guests", "it is [], expected an object"),
    ({"guests": {"a @ $.b": "x"}}, "$.guests['a @ $.b']", "it is 'x', expected a whole number"),
    ({"above": []}, "$.above", "it is [], expected an object"),
    ({"above": {"turns": 1}}, "$.above", "the field 'tool_calls' is missing"),
    ({"usage": None}, "$.usage", "it is None, expected an object"),
    ({"usage": {"input": 1}}, "$.usage", "the field 'cached_input' is missing"),
    ({"more": 1}, "$", "it is 'more', expected no field but ['name', 'beds',"),
    ({"x" * 500: 1}, "$", "it is 'xxxxxx"),
]


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@pytest.mark.parametrize(("change", "path", "reason"), FAULTS)
def test_a_fault_is_told_with_its_path(change: dict[str, Any], path: str, reason: str) -> None:
    assert isinstance(FULL, dict)
    with pytest.raises(RecordError) as caught:
        from_json({**FULL, **change}, Room)
    assert caught.value.path == path
    assert caught.value.reason.startswith(reason)
    assert len(caught.value.reason) < 250


@pytest.mark.rule("R-CKPT-05")
@pytest.mark.parametrize("field", [each.name for each in attrs.fields(Room)])
def test_a_field_with_a_default_is_required_all_the_same(field: str) -> None:
    assert isinstance(FULL, dict)
    with pytest.raises(RecordError, match=f"the field '{field}' is missing"):
        from_json({name: value for name, value in FULL.items() if name != field}, Room)


@pytest.mark.parametrize("value", [None, 1, "x", [], [FULL]])
def test_what_is_no_object_is_no_record(value: JSON) -> None:
    with pytest.raises(RecordError, match="expected an object$") as caught:
        from_json(value, Room)
    assert caught.value.path == "$"


@given(names)
def test_names_of_calls_and_tools_are_kept_in_their_order(name: str) -> None:
    stats = RunStats(per_tool={f"z{name}": ToolStats(), f"a{name}": ToolStats(calls=1)})
    assert list(from_json(to_json(stats), RunStats).per_tool) == list(stats.per_tool)


def test_a_time_keeps_its_zone() -> None:
    pause = Pause(suspends={"c1": Suspend.wake(NIGHT)})
    again = from_json(to_json(pause), Pause).suspends["c1"].at
    assert again == NIGHT
    assert again.utcoffset() == NIGHT.utcoffset()
