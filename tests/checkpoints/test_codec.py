"""Checkpoints as text: equal when they come back, or refused with the name of the field."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import (
    JSON,
    Pause,
    RunState,
    Suspend,
    assistant_message,
    tool_message,
    user_message,
)
from harness.checkpoints import (
    CHECKPOINT_VERSION,
    Checkpoint,
    _codec,
    check_checkpoint,
    checkpoint_from_json,
    checkpoint_of,
    checkpoint_to_json,
    create_checkpoint,
    dump_checkpoint,
    dump_head,
    load_checkpoint,
    load_head,
    state_of,
)
from harness.errors import CheckpointVersionError, NotJSONError, RecordError
from harness.testing import tool_call
from tests.checkpoints.examples import EXAMPLES, VERSIONS, checkpoints, stored_files, waiting
from tests.strategies import not_json

JUNK: list[object] = [None, True, -1, 1.5, "1", "", [], {}, [[[]]], {"?": {"?": []}}]
JSON_FIELDS = ("bindings", "payload", "memo", "value")
"""Whose values are the host's: anything goes."""


def record_of(checkpoint: Checkpoint) -> dict[str, Any]:
    record = json.loads(dump_checkpoint(checkpoint))
    assert isinstance(record, dict)
    return record


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every field of a record, but not what is below one of the host's."""
    inner = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else inner
    for key, each in pairs:
        if key in JSON_FIELDS or key == "messages":
            continue
        yield (*path, key)
        yield from places(each, (*path, key))


def shown(path: tuple[str | int, ...]) -> str:
    """Return a path as an error shows it: names of fields with dots, everything else indexed."""
    text = "$"
    for place, key in enumerate(path):
        named = place == 0 or path[place - 1] not in (
            "suspends",
            "replies",
            "per_tool",
            "forgotten",
        )
        text += f".{key}" if isinstance(key, str) and named else f"[{key!r}]"
    return text


def inside(record: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        record = record[key]
    return record


# -- round trips ---------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-05", "R-GEN-05", "R-STATE-01")
@settings(max_examples=50)
@given(checkpoints())
def test_a_checkpoint_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    text = dump_checkpoint(checkpoint)
    again = load_checkpoint(text)
    assert again == checkpoint
    # Which tells 1 from 1.0, and sees the order of keys.
    assert repr(again.messages) == repr(checkpoint.messages)
    assert repr(again.head.bindings) == repr(checkpoint.head.bindings)
    assert dump_checkpoint(again) == text
    assert load_head(dump_head(checkpoint.head)) == checkpoint.head
    assert checkpoint_from_json(checkpoint_to_json(checkpoint)) == checkpoint


@pytest.mark.rule("R-STATE-01")
@settings(max_examples=50)
@given(checkpoints())
def test_a_state_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    state = state_of(checkpoint)
    again = state_of(load_checkpoint(dump_checkpoint(checkpoint_of(state))))
    assert again == state
    assert isinstance(again, RunState)


@pytest.mark.rule("R-CKPT-05")
@settings(max_examples=50)
@given(checkpoints())
def test_there_is_one_text(checkpoint: Checkpoint) -> None:
    text = dump_checkpoint(checkpoint)
    assert text == msgspec.json.encode(msgspec.json.decode(text))  # no spaces
    backwards = dict(reversed(record_of(checkpoint).items()))
    for name in ("position", "stats", "limits"):
        backwards[name] = dict(reversed(backwards[name].items()))
    assert dump_checkpoint(load_checkpoint(json.dumps(backwards, indent=2))) == text


@pytest.mark.rule("R-CKPT-05")
def test_what_has_an_order_keeps_it() -> None:
    calls = [tool_call("ask", id=id) for id in ("c9", "c10", "c1")]
    messages = [user_message("Go."), assistant_message(None, calls)]
    pause = Pause(
        open=tuple(call["id"] for call in calls),
        suspends={call["id"]: Suspend.answer("Which?", {"b": 1, "a": 2}) for call in calls},
    )
    state = RunState(run_id="run", messages=messages, pause=pause)
    again = state_of(load_checkpoint(dump_checkpoint(checkpoint_of(state))))
    assert again.pause is not None
    assert list(again.pause.suspends) == ["c9", "c10", "c1"]
    assert list(again.messages[0]) == list(messages[0])
    assert str(again.pause.suspends["c9"].payload) == "{'b': 1, 'a': 2}"


def test_numbers_keep_what_they_are() -> None:
    bindings: JSON = [1, 1.0, True, 2**70 + 1, -0.0, 10**23]
    again = load_checkpoint(dump_checkpoint(create_checkpoint("r", "Go.", bindings=bindings)))
    assert repr(again.head.bindings) == repr(bindings)


def test_what_is_dumped_shares_nothing_with_the_head() -> None:
    checkpoint = waiting()
    value = checkpoint_to_json(checkpoint)
    assert isinstance(value, dict)
    before = dump_checkpoint(checkpoint)
    inside(value, ("pause", "memo"))["asked"] = "changed"
    inside(value, ("bindings",)).append("changed")
    inside(value, ("pause", "open")).append("changed")
    inside(value, ("messages", 0, "x-other"))["kept"] = "changed"
    assert dump_checkpoint(checkpoint) == before


def test_what_is_made_of_a_value_shares_nothing_with_it() -> None:
    value = checkpoint_to_json(waiting())
    made = checkpoint_from_json(value)
    inside(value, ("messages", 0, "x-other"))["kept"] = "changed"
    inside(value, ("pause", "memo"))["asked"] = "changed"
    assert made == waiting()


@pytest.mark.rule("R-CKPT-05")
@given(not_json)
def test_a_value_that_is_not_json_is_no_checkpoint(odd: object) -> None:
    for name in ("bindings", "messages"):
        record = record_of(waiting())
        record[name] = [odd]
        with pytest.raises(RecordError, match=f"not JSON at {name}"):
            checkpoint_from_json(record)


@pytest.mark.rule("R-CKPT-22")
@given(not_json)
def test_only_json_is_stored(value: object) -> None:
    checkpoint = create_checkpoint("r", "Go.")
    head = attrs.evolve(checkpoint.head, bindings={"tool": value})  # type: ignore[dict-item]
    with pytest.raises(NotJSONError):
        dump_checkpoint(attrs.evolve(checkpoint, head=head))
    with pytest.raises(NotJSONError):
        dump_head(head)
    with pytest.raises(NotJSONError):
        create_checkpoint("r", "Go.", bindings=lambda: value)  # type: ignore[arg-type]


# -- the shape -----------------------------------------------------------------------------------

USAGE = {"input": int, "cached_input": int, "output": int, "cost_cents": float}
SHAPE = {
    "version": int,
    "run_id": str,
    "revision": int,
    "parent": {"run_id": str, "revision": int},
    "status": str,
    "stop_reason": None,
    "limits": {"turns": int, "tool_calls": None, "tokens": None, "cost_cents": None},
    "position": {
        "leg": int,
        "turn": int,
        "tool_calls": int,
        "calls_taken": int,
        "usage": {**USAGE, "last_prompt": int, "last_output": int, "fresh": bool},
        "below": {"turns": int, "tool_calls": int, "usage": USAGE, "runs": int},
        "compactions": int,
        "forgotten": {"1f": int},
    },
    "stats": {
        "turns": int,
        "tool_calls": int,
        "usage": USAGE,
        "model_time": float,
        "tool_time": float,
        "per_tool": {},
        "abandoned": int,
    },
    "pause": {
        "open": [str],
        "suspends": {
            "pay": {"kind": str, "question": str, "payload": {"amount": int}, "at": None},
            "nap": {"kind": str, "question": str, "payload": None, "at": str},
        },
        "replies": {},
        "memo": {"asked": [int, None]},
        "admitted": bool,
    },
    "bindings": {"copy": str},
}


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return None if value is None else type(value)


@pytest.mark.rule("R-CKPT-02")
def test_a_record_has_these_fields() -> None:
    record = record_of(EXAMPLES["forked"]())
    assert len(record.pop("messages")) == 4
    assert shape(record) == SHAPE
    assert record["version"] == CHECKPOINT_VERSION == 1


# -- versions ------------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-05")
@pytest.mark.parametrize("path", stored_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_was_ever_stored_still_loads(path: Path) -> None:
    assert load_checkpoint(path.read_bytes()) == EXAMPLES[path.stem]()


def test_there_are_stored_files_of_every_version() -> None:
    assert {path.name for path in VERSIONS.iterdir()} == {
        str(version) for version in range(1, CHECKPOINT_VERSION + 1)
    }
    assert {path.parent.name for path in stored_files()} == {
        path.name for path in VERSIONS.iterdir()
    }


@pytest.mark.rule("R-CKPT-05")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_shape_does_not_change_without_a_new_version(name: str) -> None:
    stored = VERSIONS / str(CHECKPOINT_VERSION) / f"{name}.json"
    assert dump_checkpoint(EXAMPLES[name]()) == stored.read_bytes().rstrip(b"\n")


def test_there_is_a_step_from_every_older_version() -> None:
    assert set(_codec.UPGRADES) == set(range(1, CHECKPOINT_VERSION))


@pytest.mark.rule("R-CKPT-05")
def test_an_older_record_goes_through_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(record: dict[str, Any]) -> dict[str, Any]:
        return {**{key: record[key] for key in record if key != "name"}, "run_id": record["name"]}

    def moved(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "bindings": {"was": record["bindings"]}}

    expected = EXAMPLES["ready"]()
    record = record_of(expected)
    record["name"] = record.pop("run_id")
    head = {key: each for key, each in record.items() if key != "messages"}
    monkeypatch.setattr(_codec, "CHECKPOINT_VERSION", 3)
    monkeypatch.setattr(_codec, "UPGRADES", {1: renamed, 2: moved})
    again = load_checkpoint(json.dumps(record))
    assert again.run_id == expected.run_id
    assert again.head.bindings == {"was": expected.head.bindings}
    assert load_head(json.dumps(head)) == again.head
    assert record_of(again)["version"] == 3


@pytest.mark.rule("R-CKPT-05")
@pytest.mark.parametrize("name", [None, [], {}, "absent"])
def test_an_older_record_that_is_none_is_refused(
    name: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stripped(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "run_id": record.pop("name").strip()}

    monkeypatch.setattr(_codec, "CHECKPOINT_VERSION", 2)
    monkeypatch.setattr(_codec, "UPGRADES", {1: stripped})
    record = {**record_of(waiting()), "version": 1, "name": name}
    if name == "absent":
        del record["name"]
    with pytest.raises(RecordError, match="it is no record of version 1: "):
        load_checkpoint(json.dumps(record))


@pytest.mark.rule("R-CKPT-05")
@pytest.mark.parametrize("version", [0, -1, 2, 99, "1", 1.0, True, None, [1]])
def test_an_unknown_version_is_refused(version: object) -> None:
    record = {**record_of(waiting()), "version": version}
    for text in (json.dumps(record), json.dumps({"version": version, "messages": 1})):
        with pytest.raises(CheckpointVersionError, match="expected 1 to 1$") as caught:
            load_checkpoint(text)
        assert caught.value.path == "$.version"
        assert caught.value.version == version
    with pytest.raises(CheckpointVersionError):
        load_head(json.dumps(record))


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_field_of_a_wrong_type_is_refused_with_its_path(name: str) -> None:
    record = record_of(EXAMPLES[name]())
    fields = [path for path in places(record) if path != ("version",)]
    assert len(fields) > 30
    for path in fields:
        refused = 0
        for junk in JUNK:
            broken = copy.deepcopy(record)
            inside(broken, path[:-1])[path[-1]] = junk
            try:
                load_checkpoint(json.dumps(broken))
            except RecordError as error:
                # A part may fit its field and not the other parts, which are then named.
                refused += error.path.startswith(shown(path))
        assert refused >= 5, (path, refused)


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    record = record_of(EXAMPLES[name]())
    keyed = ("suspends", "replies", "per_tool", "forgotten")
    tried = 0
    for path in [*places(record), ("bindings",), ("messages",)]:
        if isinstance(path[-1], int) or (len(path) > 1 and path[-2] in keyed):
            continue
        broken = copy.deepcopy(record)
        del inside(broken, path[:-1])[path[-1]]
        with pytest.raises(RecordError) as caught:
            load_checkpoint(json.dumps(broken))
        assert str(path[-1]) in str(caught.value)
        assert caught.value.path in (shown(path[:-1]), shown(path))
        tried += 1
    assert tried > 30


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_unknown_field_is_refused_by_name(name: str) -> None:
    record = record_of(EXAMPLES[name]())
    keyed = ("suspends", "replies", "per_tool", "forgotten")
    for path in [(), *places(record)]:
        value = inside(record, path)
        if not isinstance(value, dict) or (path and path[-1] in keyed):
            continue
        broken = copy.deepcopy(record)
        inside(broken, path)["more"] = 1
        with pytest.raises(RecordError, match=r"it is 'more', expected no field but \[") as caught:
            load_checkpoint(json.dumps(broken))
        assert caught.value.path == shown(path)


COERCED = [
    ("$.position.usage.input", "1"),
    ("$.position.usage.input", True),
    ("$.position.usage.input", 1.0),
    ("$.position.usage.input", -1),
    ("$.position.usage.fresh", 1),
    ("$.position.usage.fresh", "true"),
    ("$.position.usage.cost_cents", "1"),
    ("$.position.usage.cost_cents", True),
    ("$.position.usage.cost_cents", -0.5),
    ("$.position.usage.cost_cents", 10**400),
    ("$.position.turn", 2.0),
    ("$.stats.model_time", None),
    ("$.stats.abandoned", "0"),
    ("$.limits.turns", 2.5),
    ("$.limits.turns", -1),
    ("$.limits.cost_cents", -1),
    ("$.revision", "4"),
    ("$.run_id", 4),
    ("$.status", "paused"),
    ("$.stop_reason", "bored"),
    ("$.pause.open", "pay"),
    ("$.pause.open", {"pay": 1}),
    ("$.pause.admitted", 1),
    ("$.parent", "run-1"),
]


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@pytest.mark.parametrize(("path", "value"), COERCED)
def test_nothing_is_taken_for_what_it_is_not(path: str, value: object) -> None:
    record = record_of(waiting())
    *above, last = path.split(".")[1:]
    inside(record, tuple(above))[last] = value
    with pytest.raises(RecordError) as caught:
        load_checkpoint(json.dumps(record))
    assert caught.value.path == path
    assert caught.value.reason.startswith("it is ")


def at(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        inside(record, path[:-1])[path[-1]] = value

    return change


def without_pause(record: dict[str, Any]) -> None:
    record["pause"] = None


def both(*changes: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        for each in changes:
            each(record)

    return change


ANSWER = {"kind": "answer", "question": "", "payload": None, "at": None}
MISFITS = {
    "a call is open and nothing is paused": (without_pause, "$.status"),
    "a call dangles in a run that is ready": (
        both(without_pause, at("status", value="ready")),
        "$.messages[1]",
    ),
    "an open call has its result": (at("pause", "open", value=["pay", "nap"]), "$.messages["),
    "an open call is unknown": (at("pause", "open", value=["pay", "x"]), "$.messages["),
    "no messages": (at("messages", value=[]), "$.messages"),
    "messages are no list": (at("messages", value={}), "$.messages"),
    "a message is none": (at("messages", 0, value=1), "$.messages[0]"),
    "a result answers nothing": (
        lambda record: record["messages"].append(tool_message("x", "{}")),
        "$.messages[4]",
    ),
    "another status": (at("status", value="ready"), "$.status"),
    "a wake for a question": (at("status", value="waiting_for_wake"), "$.status"),
    "finished and paused": (
        both(at("status", value="finished"), at("stop_reason", value="done")),
        "$.status",
    ),
    "a reason and not finished": (at("stop_reason", value="done"), "$.stop_reason"),
    "a wake without a time": (at("pause", "suspends", "nap", "at", value=None), "$.pause.suspends"),
    "a wake without a time zone": (
        at("pause", "suspends", "nap", "at", value="2030-01-01T00:00:00"),
        "$.pause.suspends",
    ),
    "no date": (at("pause", "suspends", "nap", "at", value="noon"), "$.pause.suspends['nap'].at"),
    "who asks is not of the batch": (
        at("pause", "suspends", "x", value=ANSWER),
        "$.pause.suspends",
    ),
    "who asks has its result": (at("pause", "suspends", "look", value=ANSWER), "$.pause.open"),
    "nobody asks": (both(at("pause", "suspends", value={}), at("status", value="ready")),
                    "$.pause"),
    "an open call asks nothing": (
        both(
            lambda record: inside(record, ("pause", "suspends")).pop("pay"),
            at("status", value="ready"),
        ),
        "$.pause.open",
    ),
    "not admitted, and one has its result": (
        both(
            at("pause", "admitted", value=False),
            lambda record: inside(record, ("pause", "suspends")).pop("nap"),
        ),
        "$.pause.open",
    ),
    "a reply to one that only sleeps": (
        at("pause", "replies", value={"nap": {"value": 1, "payload": None}}),
        "$.pause.replies",
    ),
    "not admitted, and one sleeps": (
        both(
            at("pause", "admitted", value=False),
            at("pause", "open", value=["pay", "nap", "look"]),
            lambda record: inside(record, ("messages",)).__delitem__(slice(2, None)),
        ),
        "$.pause.suspends",
    ),
    "an open call twice": (at("pause", "open", value=["pay", "pay"]), "$.messages[1]"),
    "a reply to nobody": (at("pause", "replies", value={"look": {"value": 1}}), "$.pause.replies"),
    "no id": (at("run_id", value=""), "$.run_id"),
    "its own parent": (at("parent", value={"run_id": "run-2", "revision": 0}), "$.parent.run_id"),
    "more calls taken than asked for": (
        at("position", "calls_taken", value=10),
        "$.position.calls_taken",
    ),
}  # fmt: skip


@pytest.mark.rule("R-CKPT-04", "R-STATE-02")
@pytest.mark.parametrize("what", MISFITS)
def test_parts_that_do_not_fit_together_are_refused(what: str) -> None:
    change, path = MISFITS[what]
    record = record_of(waiting())
    load_checkpoint(json.dumps(record))
    change(record)
    with pytest.raises(RecordError) as caught:
        load_checkpoint(json.dumps(record))
    assert caught.value.path.startswith(path)


@pytest.mark.rule("R-CKPT-04")
def test_a_finished_run_has_a_reason_and_a_pause_waits_for_something() -> None:
    done = EXAMPLES["finished"]()
    with pytest.raises(RecordError) as caught:
        check_checkpoint(attrs.evolve(done, head=attrs.evolve(done.head, stop_reason=None)))
    assert caught.value.path == "$.stop_reason"
    waits = EXAMPLES["napping"]()
    assert waits.head.pause is not None
    empty = attrs.evolve(waits.head.pause, suspends={})
    with pytest.raises(RecordError, match="waits for nothing") as caught:
        check_checkpoint(attrs.evolve(waits, head=attrs.evolve(waits.head, pause=empty)))
    assert caught.value.path == "$.pause"


# -- hostile files -------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_that_was_cut_anywhere_is_refused(name: str) -> None:
    text = dump_checkpoint(EXAMPLES[name]())
    for end in range(len(text)):
        with pytest.raises(RecordError):
            load_checkpoint(text[:end])


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@given(st.data())
def test_a_file_with_any_bytes_changed_loads_or_is_refused(data: st.DataObject) -> None:
    text = bytearray(dump_checkpoint(waiting()))
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        loaded = load_checkpoint(bytes(text))
    except RecordError:
        return
    assert load_checkpoint(dump_checkpoint(loaded)) == loaded


HOSTILE = {
    "nothing": b"",
    "blank": b" \n",
    "a NUL": b"\x00",
    "a brace": b"{",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "no utf-8": b'{"version": 1, "\xff": 1}',
    "a lone surrogate": b'{"version": 1, "run_id": "\\ud800"}',
    "deep": b"[" * 100_000,
    "deep and closed": b"[" * 5_000 + b"]" * 5_000,
    "deep in its version": b'{"version":' + b"[" * 500 + b"]" * 500 + b"}",
    "a number of many digits": b'{"version": ' + b"9" * 100_000 + b"}",
    "a number out of range": b'{"version": 1e999}',
    "megabytes": b'{"version": 1, "run_id": "' + b"x" * 5_000_000 + b'"}',
    "many fields": b'{"version": 1' + b"".join(b',"%d": 1' % n for n in range(100_000)) + b"}",
}


@pytest.mark.rule("R-CKPT-05", "R-STATE-02")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_in_one_sentence(what: str) -> None:
    for load in (load_checkpoint, load_head):
        with pytest.raises(RecordError) as caught:
            load(HOSTILE[what])
        assert len(str(caught.value)) < 1_000
