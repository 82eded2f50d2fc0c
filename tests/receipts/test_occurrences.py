import itertools
import time
from collections import Counter
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._arguments import call_digest
from harness._json import encode_text
from harness._messages import (
    Message,
    MessagesView,
    assistant_message,
    success_envelope,
    tool_message,
    user_message,
)
from harness._toolset import Batch, NormalizedCall, Outcome, ToolCall
from harness.receipts._occurrences import Occurrences
from harness.testing import tool_call
from harness.transcript import calls_in, calls_of

ids = itertools.count()


def unchanged(call: ToolCall) -> ToolCall:
    return call


def lower(call: ToolCall) -> ToolCall | Outcome:
    """Normalize: letters to lower case; what has a '!' has no normal form; 'free' does nothing."""
    if call.name == "free":
        return call
    if "!" in call.arguments:
        return Outcome.failed("it shouts", "validation")
    return NormalizedCall(
        id=call.id, name=call.name, arguments=call.arguments.lower(), index=call.index
    )


def ask(*calls: str) -> Message:
    """Return a message with calls, each given as its tool and its argument, ``pay:x``."""
    return assistant_message(
        None,
        [
            tool_call(name, {"a": value}, id=f"call_{next(ids)}")
            for name, _, value in (each.partition(":") for each in calls)
        ],
    )


def answers(message: Message) -> list[Message]:
    return [tool_message(each["id"], success_envelope(None)) for each in message["tool_calls"]]


def turns(*each: Sequence[str]) -> list[Message]:
    """Return a transcript of settled turns."""
    messages = [user_message("Go.")]
    for calls in each:
        message = ask(*calls)
        messages += [message, *answers(message)]
    return messages


def batch_of(before: list[Message], *calls: str, forgotten: dict[str, int] | None = None) -> Batch:
    """Append a message with *calls*, and return its batch."""
    before.append(ask(*calls))
    return Batch(
        run_id="run_1",
        turn_id="run_1/9",
        turn=9,
        calls=calls_of(before[-1]),
        messages=MessagesView(before),
        forgotten=forgotten or {},
    )


def numbers(occurrences: Occurrences, batch: Batch) -> list[int]:
    return [occurrences.number(call, batch) for call in batch.calls]


@pytest.mark.rule("R-RCPT-16")
def test_equal_calls_are_numbered_over_turns_and_within_their_batch() -> None:
    messages = turns(["pay:x", "pay:x", "pay:y"], ["pay:x", "get:x"])
    batch = batch_of(messages, "pay:x", "pay:y", "pay:x", "get:x", "get:y", "pay:x")
    assert numbers(Occurrences(unchanged), batch) == [3, 1, 4, 1, 0, 5]


@pytest.mark.rule("R-RCPT-01", "R-RCPT-16")
def test_a_turn_that_is_made_again_in_another_order_has_the_same_numbers() -> None:
    first, again = turns(["pay:x"]), turns(["pay:x"])
    one = batch_of(first, "pay:x", "pay:y", "pay:x")
    other = batch_of(again, "pay:y", "pay:x", "pay:x")
    occurrences = Occurrences(unchanged)
    seen = [
        sorted((call.arguments, occurrences.number(call, batch)) for call in batch.calls)
        for batch in (one, other)
    ]
    assert seen[0] == seen[1]


@pytest.mark.rule("R-RCPT-16")
def test_a_call_counts_whatever_it_was_answered() -> None:
    messages = turns(["pay:x"])
    messages[-1]["content"] = '{"success":false,"kind":"not_run","error":"stopped"}'
    assert numbers(Occurrences(unchanged), batch_of(messages, "pay:x")) == [1]


@pytest.mark.rule("R-RCPT-16")
def test_calls_that_a_compaction_took_out_are_counted() -> None:
    gone = call_digest(next(calls_in([ask("pay:x")])))
    messages = turns(["pay:x"])
    batch = batch_of(messages, "pay:x", "pay:y", "pay:x", forgotten={gone: 5})
    assert numbers(Occurrences(unchanged), batch) == [6, 0, 7]


def test_a_compaction_is_noticed_even_if_the_transcript_has_the_same_end_and_length() -> None:
    messages = turns(["pay:x"], ["pay:x"])
    occurrences = Occurrences(unchanged)
    assert numbers(occurrences, batch_of(messages, "pay:x")) == [2]
    messages += answers(messages[-1])
    gone = Counter(map(call_digest, calls_in(messages[1:3])))
    messages[1:3] = [user_message("x was paid."), user_message("Go on.")]
    assert numbers(occurrences, batch_of(messages, "pay:x", forgotten=dict(gone))) == [3]


def test_another_transcript_of_the_same_run_is_read_from_its_start() -> None:
    occurrences = Occurrences(unchanged)
    messages = turns(["pay:x"], ["pay:x"])
    assert numbers(occurrences, batch_of(messages, "pay:x")) == [2]
    # An earlier state of it, as a worker loads it that goes on after a crash.
    assert numbers(occurrences, batch_of(messages[:3], "pay:x")) == [1]
    assert numbers(occurrences, batch_of(turns(["pay:y"], ["pay:x"]), "pay:x", "pay:y")) == [1, 1]


@pytest.mark.rule("R-RCPT-08", "R-RCPT-16")
def test_calls_are_equal_if_they_are_once_they_are_normalized() -> None:
    messages = turns(["pay:x", "pay:X", "free:x", "free:X"])
    batch = batch_of(messages, "pay:X", "free:X", "pay:x", "free:x")
    assert numbers(Occurrences(lower), batch) == [2, 1, 3, 1]


def test_a_call_that_has_no_normal_form_is_compared_as_it_is() -> None:
    messages = turns(["pay:X!", "pay:x!"])
    batch = batch_of(messages, "pay:x", "pay:X!")
    assert numbers(Occurrences(lower), batch) == [0, 1]


def test_calls_are_compared_as_they_are_now_however_they_were_before() -> None:
    """A tool that is loaded late has its calls numbered as if it had been there from the start."""
    loaded: list[str] = []
    late = Occurrences(lambda call: lower(call) if call.name in loaded else call)
    messages = turns(["pay:X"])
    assert numbers(late, batch_of(messages, "pay:x")) == [0]
    loaded.append("pay")
    messages += answers(messages[-1])
    batch = batch_of(messages, "pay:x")
    assert numbers(late, batch) == numbers(Occurrences(lower), batch) == [2]


def test_a_call_that_was_renamed_on_its_way_is_numbered_as_the_model_made_it() -> None:
    messages = turns(["bank__pay:x"])
    batch = batch_of(messages, "bank__pay:x")
    renamed = attrs.evolve(batch.calls[0], name="pay")
    assert Occurrences(unchanged).number(renamed, batch) == 1


def test_calls_that_are_no_function_calls_are_numbered_apart() -> None:
    messages = turns(["pay:x"])
    calls: list[object] = [
        {"id": each, "type": "custom", "custom": {"name": "pay", "input": '{"a":"x"}'}}
        for each in ("one", "two")
    ]
    message = assistant_message(None, calls)  # type: ignore[arg-type]  # calls of another type
    messages.append(message)
    batch = Batch(
        run_id="r", turn_id="t", turn=1, calls=calls_of(message), messages=messages
    )  # fmt: skip
    assert numbers(Occurrences(unchanged), batch) == [0, 1]


names = st.sampled_from(["pay:x", "pay:X", "pay:y", "get:x", "free:x", "free:X"])


@given(
    st.lists(st.lists(names, min_size=1, max_size=4), max_size=6),
    st.sets(st.integers(0, 6)),
    st.sampled_from([unchanged, lower]),
)
def test_reading_on_comes_to_the_same_as_reading_all(
    asked: list[list[str]], compacted: set[int], normalize: object
) -> None:
    """Whatever the turns and compactions are, numbers follow from what is in the state alone."""
    occurrences = Occurrences(normalize)  # type: ignore[arg-type]  # one of the two
    messages, forgotten = [user_message("Go.")], Counter[str]()
    seen: set[tuple[str, int]] = set()
    for turn, calls in enumerate(asked):
        batch = batch_of(messages, *calls, forgotten=dict(forgotten))
        here = numbers(occurrences, batch)
        assert here == numbers(Occurrences(normalize), batch)  # type: ignore[arg-type]  # as above
        if normalize is unchanged:
            # So no call of a run has the key of another one.
            keys = set(zip(calls, here, strict=True))
            assert len(keys) == len(calls)
            assert not keys & seen
            seen |= keys
        messages += answers(messages[-1])
        if turn in compacted:
            forgotten.update(map(call_digest, calls_in(messages)))
            messages[:] = [user_message("Shorter.")]


@pytest.mark.slow
def test_a_long_transcript_is_read_once() -> None:
    """Ten thousand messages: the whole run costs about as much as reading them once does."""
    normalizations = 0

    def normalize(call: ToolCall) -> ToolCall | Outcome:
        nonlocal normalizations
        normalizations += 1
        return lower(call)

    occurrences = Occurrences(normalize)
    messages = [user_message("Go.")]
    began = time.perf_counter()
    for turn in range(3_333):
        batch = batch_of(messages, f"pay:{turn % 7}", "pay:x")
        assert numbers(occurrences, batch) == [turn // 7, turn]
        messages += answers(messages[-1])
    took = time.perf_counter() - began
    assert len(messages) == 10_000
    # Each call once as its batch's own, once as the transcript's, and twice to see what it is.
    assert normalizations <= 4 * 2 * 3_333
    assert took < 5.0  # ten times what it takes; reading all of it every turn takes a minute


def test_a_large_batch_is_numbered_in_one_go() -> None:
    digested = 0

    def normalize(call: ToolCall) -> ToolCall | Outcome:
        nonlocal digested
        digested += 1
        return lower(call)

    messages = [user_message("Go.")]
    batch = batch_of(messages, *["pay:x"] * 1_000)
    assert numbers(Occurrences(normalize), batch) == list(range(1_000))
    assert digested == 2_000


def test_encoding_of_a_call_does_not_matter() -> None:
    message = assistant_message(None, [tool_call("pay", '{"b":1.0,"a":2}', id="one")])
    messages = [user_message("Go."), message, *answers(message)]
    same = assistant_message(None, [tool_call("pay", encode_text({"a": 2, "b": 1}), id="two")])
    messages.append(same)
    batch = Batch(run_id="r", turn_id="t", turn=1, calls=calls_of(same), messages=messages)
    assert numbers(Occurrences(unchanged), batch) == [1]
