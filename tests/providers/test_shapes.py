"""Each odd stream comes to its reply, its defect or its error, in every split of its bytes."""

import itertools
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import CompletionDefectError, ProviderError
from harness._messages import CallMessage
from harness._model import Assembly, ModelTurn
from harness._usage import Usage
from harness.completion import Assembler, detect_completion_defect
from harness.providers._chunks import read_event
from harness.providers._failures import WireError
from harness.providers._sse import EventDecoder, ServerEvent
from tests.providers.asking import Surface, ask, asking
from tests.providers.server import chunked, head, replying
from tests.providers.shapes import SHAPES
from tests.providers.streams import Case


def test_each_shape_has_a_name_of_its_own() -> None:
    assert len({case.name for case in SHAPES}) == len(SHAPES)


@attrs.frozen(kw_only=True)
class Outcome:
    """What a stream came to; of one that failed, nothing but why."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    usage: Usage = Usage()
    defect: str | None = None
    error: str | None = None


def expected(case: Case) -> Outcome:
    if case.error is not None or case.defect is not None:
        return Outcome(defect=case.defect, error=case.error)
    return Outcome(
        text=case.text,
        reasoning=case.reasoning,
        refusal=case.refusal,
        calls=case.calls,
        usage=case.usage,
    )


def rows(calls: Iterable[CallMessage]) -> tuple[tuple[str, str, str], ...]:
    return tuple((c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls)


def events(pieces: Iterable[bytes]) -> Iterable[ServerEvent]:
    decoder = EventDecoder()
    for piece in pieces:
        yield from decoder.feed(piece)
    yield from decoder.close()


def read(pieces: Iterable[bytes], error: str | None) -> Outcome:
    """Read a body that comes in *pieces*, up to its end event; *error* is what to look for."""
    assembler = Assembler()
    try:
        for event in events(pieces):
            chunk = read_event(event)
            assembler.observe(chunk)
            if chunk.end:
                break
    except WireError as failure:
        return Outcome(error=error if error and error in failure.message else failure.message)
    completion = assembler.completion()
    if not completion.clean_end:
        return Outcome(defect="unfinished")
    defect = detect_completion_defect(completion, Assembly())
    if defect is not None:
        return Outcome(defect=defect.kind)
    return Outcome(
        text=completion.text,
        reasoning=completion.reasoning,
        refusal=completion.refusal,
        calls=rows(completion.calls),
        usage=completion.usage,
    )


@pytest.mark.rule("R-PROV-05", "R-PROV-07", "R-PROV-08", "R-PROV-09", "R-PROV-10")
@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_each_shape_comes_to_what_it_says_wherever_it_is_cut(case: Case) -> None:
    body = case.body
    assert read([body], case.error) == expected(case)
    assert read((body[at : at + 1] for at in range(len(body))), case.error) == expected(case)
    for at in range(1, len(body)):
        assert read((body[:at], body[at:]), case.error) == expected(case), at


@pytest.mark.rule("R-PROV-05", "R-PROV-08")
@given(st.sampled_from(SHAPES), st.lists(st.integers(0, 2**12), max_size=20))
def test_each_shape_comes_to_what_it_says_in_any_pieces(case: Case, places: list[int]) -> None:
    edges = sorted({0, len(case.body), *(place % (len(case.body) + 1) for place in places)})
    pieces = (case.body[start:end] for start, end in itertools.pairwise(edges))
    assert read(pieces, case.error) == expected(case)


def kept(turn: ModelTurn) -> Outcome:
    return Outcome(
        text=turn.message.get("content") or "",  # type: ignore[arg-type]  # a reply's is a text
        reasoning=turn.reasoning or "",
        refusal=turn.message.get("refusal") or "",
        calls=rows(turn.message.get("tool_calls", [])),
        usage=turn.usage,
    )


@pytest.mark.rule("R-PROV-07", "R-PROV-08", "R-PROV-10")
@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
async def test_each_shape_comes_over_the_wire_to_what_it_says(case: Case) -> None:
    surface = Surface()
    async with asking(replying(head() + chunked(case.body))) as (model, _):
        if case.error is not None:
            with pytest.raises(ProviderError) as caught:
                await ask(model, surface)
            assert case.error in str(caught.value)
            assert (caught.value.kind, caught.value.category) == ("http", "server_error")
            assert (caught.value.phase, caught.value.status_code) == ("stream", 200)
        elif case.defect is not None:
            with pytest.raises(CompletionDefectError) as defect:
                await ask(model, surface)
            assert defect.value.defect == case.defect
        else:
            assert kept(await ask(model, surface)) == expected(case)
            assert surface.text() == case.text
