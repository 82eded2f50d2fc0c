import math
import types
from typing import Literal, TypeVar, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import _events
from harness._errors import ProviderError, RunTimeoutError
from harness._events import Event, Failure, Posted, Tried, decode_event, encode_event
from harness._usage import Usage
from tests.strategies import texts
from tests.test_usage import usages

UNION: tuple[type[Event], ...] = get_args(Event)
T = TypeVar("T", bound=msgspec.Struct)

failures = st.builds(
    Failure,
    kind=texts,
    code=texts,
    message=texts,
    category=st.none() | st.just("stalled"),
    status_code=st.none() | st.integers(100, 599),
)

PLAIN: dict[object, st.SearchStrategy[object]] = {
    str: texts,
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    types.NoneType: st.none(),
    Usage: usages,
    Failure: failures,
    Tried: st.builds(Tried, turn_id=texts, provider=texts, hedge=st.booleans()),
    tuple[str, ...]: st.lists(texts, max_size=3).map(tuple),
    Event: st.builds(Posted, text=texts, run_id=texts),
}
"""The only types that a field of an event may have, besides literals and unions of these."""


def values(kind: object) -> st.SearchStrategy[object]:
    if kind in PLAIN:
        return PLAIN[kind]
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) in (types.UnionType, Union):
        return st.one_of(*map(values, get_args(kind)))
    raise AssertionError(f"{kind} has no place in an event")


def events(cls: type[T]) -> st.SearchStrategy[T]:
    fields = msgspec.structs.fields(cls)
    return st.builds(cls, **{field.name: values(field.type) for field in fields})


@pytest.mark.parametrize("cls", UNION)
@settings(max_examples=30)
@given(data=st.data())
def test_every_event_goes_through_json_and_back(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(events(cls))
    text = encode_event(event)
    assert decode_event(text) == event
    assert decode_event(text.decode()) == event
    assert msgspec.json.decode(text)["type"] == cls.__name__


def test_the_union_is_complete() -> None:
    assert set(UNION) == set(_events._Event.__subclasses__())
    assert len(set(UNION)) == len(UNION)
    assert {cls.__name__ for cls in UNION} < set(_events.__all__)


@pytest.mark.parametrize("cls", UNION)
def test_an_event_has_a_docstring_of_its_own_no_field_called_type_and_the_stamp(
    cls: type[Event],
) -> None:
    assert cls.__doc__
    names = [field.name for field in msgspec.structs.fields(cls)]
    assert "type" not in names
    assert {"run_id", "leg", "turn", "at"} <= set(names)
    assert len(names) <= 10


@pytest.mark.rule("R-GEN-04")
@pytest.mark.parametrize("cls", UNION)
@settings(max_examples=2)
@given(data=st.data())
def test_no_event_can_be_changed(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(events(cls))
    hash(event)
    for name in cls.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(event, name, getattr(event, name))


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"null",
        b'{"type":"Nothing"}',
        b'{"type":"TextDelta","turn_id":"t"}',
        b'{"type":"Posted","text":7}',
        b'{"type":"RunFinished","stop_reason":"bored"}',
        b'{"type":"TurnFinished","turn_id":"t","counted":true,"usage":{"input":-1}}',
    ],
)
def test_what_is_no_event_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_event(text)


def test_a_failure_describes_an_error_in_plain_values() -> None:
    assert Failure.of(RunTimeoutError("the run")) == Failure(
        kind="RunTimeoutError", code="run.timeout", message="the run ran out of time"
    )
    assert Failure.of(ValueError("no")) == Failure(kind="ValueError", code="error", message="no")
    remote = ProviderError(
        "busy", kind="http", category="rate_limited", phase="headers", status_code=429
    )
    told = Failure.of(remote)
    assert (told.category, told.status_code) == ("rate_limited", 429)


def test_the_stamp_is_left_to_the_run() -> None:
    event = Posted(text="Hello")
    assert (event.run_id, event.leg, event.turn, event.at) == ("", 0, 0, 0.0)
    assert math.isfinite(event.at)
