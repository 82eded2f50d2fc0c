"""Rows 11 to 22: calls, and the results that answer them."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator

from harness._arguments import Unparseable, parse_arguments
from harness.transcript._pairing import Place
from harness.transcript._rows import ALL, PROVIDERS, Finding, Reading, RefusalRow

__all__ = ["CALL_ROWS"]

_ID_LENGTH = 40
_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")


def _repeated_call_id(reading: Reading) -> Iterator[Finding]:
    for asked in reading.pairing.asked:
        ids = Counter(call.id for call in asked.line.calls)
        for id, count in ids.items():
            if count > 1:
                yield Finding(asked.line.index, f"{count} of its calls have one id", id)


def _long_call_id(reading: Reading) -> Iterator[Finding]:
    for line, call in reading.calls():
        if len(call.id) > _ID_LENGTH:
            what = f"a call id has {len(call.id)} characters, expected at most {_ID_LENGTH}"
            yield Finding(line.index, what, call.id)


def _call_id_characters(reading: Reading) -> Iterator[Finding]:
    for line, call in reading.calls():
        if not _PLAIN.fullmatch(call.id):
            what = "a call id has characters besides letters, digits, '_' and '-'"
            yield Finding(line.index, what, call.id)


def _call_name_characters(reading: Reading) -> Iterator[Finding]:
    for line, call in reading.calls():
        if call.type == "function" and not _PLAIN.fullmatch(call.name):
            what = "a tool's name has characters besides letters, digits, '_' and '-'"
            yield Finding(line.index, what, call.id)


def _arguments_not_object(reading: Reading) -> Iterator[Finding]:
    for line, call in reading.calls():
        if isinstance(parse_arguments(call.arguments, call_type=call.type), Unparseable):
            yield Finding(line.index, "the arguments of a call are not one JSON object", call.id)


def _unanswered_call(reading: Reading) -> Iterator[Finding]:
    for asked in reading.pairing.asked:
        may_wait = Counter(reading.open_calls if asked.line is reading.last_assistant else ())
        for id in asked.unanswered():
            may_wait[id] -= 1
            if may_wait[id] < 0:
                yield Finding(asked.line.index, "a call has no result", id)


def _results(place: Place, what: str) -> Callable[[Reading], Iterator[Finding]]:
    """Return the function that finds the results that stand at *place*."""

    def find(reading: Reading) -> Iterator[Finding]:
        for result in reading.pairing.results:
            if result.place == place:
                yield Finding(result.line.index, what, result.line.result_for or None)

    return find


def _result_out_of_order(reading: Reading) -> Iterator[Finding]:
    for asked in reading.pairing.asked:
        positions: dict[str, deque[int]] = {}
        for position, call in enumerate(asked.line.calls):
            positions.setdefault(call.id, deque()).append(position)
        reached = -1
        for result in asked.results:
            mine = positions[result.result_for]
            while mine and mine[0] <= reached:
                mine.popleft()
            if mine:
                reached = mine.popleft()
            else:
                what = "a result stands after that of a later call"
                yield Finding(result.index, what, result.result_for)


def _not_open(reading: Reading) -> Iterator[Finding]:
    last = reading.last_assistant
    asked = (each for each in reading.pairing.asked if each.line is last)
    waiting = Counter(id for each in asked for id in each.unanswered())
    for id in reading.open_calls:
        waiting[id] -= 1
        if waiting[id] < 0:
            yield Finding(0 if last is None else last.index, "it has no such open call", id)


CALL_ROWS: tuple[RefusalRow, ...] = (
    RefusalRow(
        number=11,
        code="repeated_call_id",
        checks=PROVIDERS,
        description="Two calls of one message have the same id.",
        find=_repeated_call_id,
    ),
    RefusalRow(
        number=12,
        code="long_call_id",
        checks=("openai",),
        description="A call id has more than 40 characters.",
        find=_long_call_id,
    ),
    RefusalRow(
        number=13,
        code="call_id_characters",
        checks=("anthropic",),
        description="A call id has a character besides ASCII letters, digits, '_' and '-'.",
        find=_call_id_characters,
    ),
    RefusalRow(
        number=14,
        code="call_name_characters",
        checks=PROVIDERS,
        description="A called name has a character besides ASCII letters, digits, '_' and '-'.",
        find=_call_name_characters,
    ),
    RefusalRow(
        number=15,
        code="arguments_not_object",
        checks=PROVIDERS,
        description="The arguments of a function call are not absent and not one JSON object.",
        find=_arguments_not_object,
    ),
    RefusalRow(
        number=16,
        code="unanswered_call",
        checks=ALL,
        description="A call has no result, and is not open.",
        find=_unanswered_call,
    ),
    RefusalRow(
        number=17,
        code="result_without_id",
        checks=ALL,
        description="A tool message does not name the call that it answers.",
        find=_results("nameless", "a tool message names no call"),
    ),
    RefusalRow(
        number=18,
        code="unmatched_result",
        checks=ALL,
        description="A tool message names a call that no message before it asks for.",
        find=_results("unmatched", "a result names a call that nothing before it asks for"),
    ),
    RefusalRow(
        number=19,
        code="repeated_result",
        checks=ALL,
        description="A tool message names a call that has its result already.",
        find=_results("repeated", "a result names a call that is answered already"),
    ),
    RefusalRow(
        number=20,
        code="misplaced_result",
        checks=ALL,
        description="Something besides results stands between a call and its result.",
        find=_results("misplaced", "a result does not stand directly after its call"),
    ),
    RefusalRow(
        number=21,
        code="result_out_of_order",
        checks=("settled",),
        description="A result stands after that of a later call of the same message.",
        find=_result_out_of_order,
    ),
    RefusalRow(
        number=22,
        code="not_open",
        checks=("settled",),
        description="A call said to be open is answered, or not of the last assistant message.",
        find=_not_open,
    ),
)
