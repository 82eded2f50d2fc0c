from collections.abc import Callable

import attrs
import msgspec
import pytest

from harness._messages import assistant_message, user_message
from harness._model import (
    Assembly,
    CallPiece,
    Chunk,
    Halt,
    ModelRequest,
    ModelTurn,
    TextSurface,
)
from harness._usage import Usage

REQUEST = ModelRequest(run_id="r", turn_id="t", turn=0, messages=(user_message("Hello"),))


@pytest.mark.rule("R-GEN-04")
@pytest.mark.parametrize(
    "value",
    [
        REQUEST,
        ModelTurn(message=assistant_message("Hello")),
        Halt(code="c", message="m"),
        Assembly(),
        TextSurface(),
    ],
)
def test_a_record_cannot_be_changed(value: attrs.AttrsInstance) -> None:
    for field in attrs.fields(type(value)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, field.name, getattr(value, field.name))


@pytest.mark.rule("R-GEN-04")
@pytest.mark.parametrize("value", [Chunk(), CallPiece(), Usage()])
def test_a_chunk_cannot_be_changed(value: msgspec.Struct) -> None:
    for name in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, name, getattr(value, name))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ModelRequest("r", "t", 0, ()),  # type: ignore[call-arg]  # wrong on purpose
        lambda: ModelTurn(assistant_message("Hello")),  # type: ignore[call-arg]  # wrong on purpose
        lambda: Halt("c", "m"),  # type: ignore[call-arg]  # wrong on purpose
        lambda: Chunk("text"),  # type: ignore[call-arg]  # wrong on purpose
        lambda: CallPiece(0),  # type: ignore[call-arg]  # wrong on purpose
    ],
)
def test_fields_are_given_by_name(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()


def test_a_model_that_wraps_another_may_change_a_copy_of_the_request() -> None:
    forced = attrs.evolve(REQUEST, tool_choice="required")
    assert (forced.tool_choice, REQUEST.tool_choice) == ("required", None)
    assert forced.messages is REQUEST.messages


def test_two_requests_share_no_settings() -> None:
    other = ModelRequest(run_id="r", turn_id="t", turn=0, messages=())
    assert other.settings == REQUEST.settings == {}
    assert other.settings is not REQUEST.settings


def test_a_turn_is_accepted_and_strict_unless_somebody_says_otherwise() -> None:
    turn = ModelTurn(message=assistant_message("Hello"))
    assert (turn.accept, turn.usage, turn.finish_reason, turn.parsed) == (True, Usage(), None, None)
    assert Assembly() == Assembly(ids="strict", empty="refuse", require_finish_reason=False)
    assert TextSurface() == TextSurface(retractable=True, max_resets=None)
    assert Chunk().end is False
