"""Server-sent events: any split, every line end, and the bound."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.providers._failures import WireError
from harness.providers._sse import MAX_EVENT_BYTES, EventDecoder, ServerEvent


def events_of(pieces: list[bytes], limit: int = MAX_EVENT_BYTES) -> list[ServerEvent | str]:
    """The events of a whole body, and the error's text if it has one."""
    decoder = EventDecoder(limit=limit)
    events: list[ServerEvent | str] = []
    try:
        for piece in pieces:
            events.extend(decoder.feed(piece))
        events.extend(decoder.close())
    except WireError as error:
        events.append(error.message.split(" of ")[0])  # the size seen depends on the split
    return events


def cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(edges)]


LINES = st.sampled_from(
    [
        b"data: one",
        b"data:two",
        b"data",
        b"data: ",
        b"data:  spaced",
        b"data: caf\xc3\xa9",
        b"data: \xff\xfe",
        b": comment",
        b":",
        b"event: error",
        b"event",
        b"id: 7",
        b"retry: 10",
        b"unknown: field",
        b"\xef\xbb\xbfdata: marked",
        b"",
        b"",
    ]
)
BODIES = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@pytest.mark.rule("R-PROV-05")
@given(BODIES | st.binary(max_size=60), st.lists(st.integers(0, 400), max_size=12))
@example(b"data: a\r\n\r\ndata: b\r\r", [8, 9, 10, 11])
@example(b"\xef\xbb\xbfdata: a\n\n", [1, 2])
@example(b"data: a\r\ndata: b\r\n\r\n", [8, 8])
def test_any_split_of_the_bytes_gives_the_same_events(body: bytes, places: list[int]) -> None:
    assert events_of(cut(body, places)) == events_of([body])


@pytest.mark.rule("R-PROV-05")
@given(BODIES, st.lists(st.integers(0, 400), max_size=12), st.integers(1, 20))
def test_any_split_gives_the_same_events_before_the_bound_is_met(
    body: bytes, places: list[int], limit: int
) -> None:
    assert events_of(cut(body, places), limit) == events_of([body], limit)


@pytest.mark.rule("R-PROV-05")
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_is_one(end: bytes) -> None:
    body = (
        b"data: a" + end + b"data: b" + end + end + b"event: error" + end + b"data: c" + end + end
    )
    assert events_of([body]) == [ServerEvent("", b"a\nb"), ServerEvent("error", b"c")]


@pytest.mark.rule("R-PROV-05")
@pytest.mark.parametrize(
    ("body", "events"),
    [
        pytest.param(b": OPENROUTER PROCESSING\n\n: again\n\n", [], id="comments"),
        pytest.param(b"id: 1\nretry: 5\ndata: a\n\n", [ServerEvent("", b"a")], id="other fields"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [ServerEvent("", b"a")], id="byte order mark"),
        pytest.param(
            b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [ServerEvent("", b"a")], id="late mark"
        ),
        pytest.param(b"data:\n\ndata\n\ndata: \n\n", [], id="empty data"),
        pytest.param(b"data:  a\n\n", [ServerEvent("", b" a")], id="one space goes"),
        pytest.param(b"event: x\n\ndata: a\n\n", [ServerEvent("", b"a")], id="name without data"),
        pytest.param(b"event: error\n\n", [ServerEvent("error", b"")], id="error without data"),
        pytest.param(b"event: error", [ServerEvent("error", b"")], id="error at the end"),
        pytest.param(b"event: error\nevent: x\n\n", [], id="the last name counts"),
        pytest.param(b"{}\n\n", [], id="a bare line"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_what_the_format_allows_is_read_as_it_says(body: bytes, events: list[ServerEvent]) -> None:
    assert events_of([body]) == events


@pytest.mark.rule("R-PROV-07")
@pytest.mark.parametrize("body", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r"])
def test_the_last_event_needs_no_blank_line(body: bytes) -> None:
    assert events_of([body]) == [ServerEvent("", b"[DONE]")]


@pytest.mark.rule("R-PROV-06")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"data: " + b"x" * 5, id="a line"),
        pytest.param(b"data: " + b"x" * 5 + b"\n\n", id="a finished line"),
        pytest.param(b"data:xx\n" * 4, id="an event"),
    ],
)
def test_what_is_longer_than_the_bound_is_refused(body: bytes) -> None:
    decoder = EventDecoder(limit=10)
    with pytest.raises(WireError, match=r"^(a line|an event) of \d+ bytes or more, expected at"):
        list(decoder.feed(body))


@pytest.mark.rule("R-PROV-06")
def test_what_is_just_as_long_as_the_bound_is_read() -> None:
    assert events_of([b"data: " + b"x" * 4 + b"\n\n"], limit=10) == [ServerEvent("", b"xxxx")]


@pytest.mark.rule("R-PROV-06")
def test_a_megabyte_in_one_event_is_read_in_linear_time() -> None:
    body = b"data: " + b"x" * 2**20 + b"\n\n"
    assert events_of([body[at : at + 1000] for at in range(0, len(body), 1000)]) == [
        ServerEvent("", b"x" * 2**20)
    ]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_bound_that_is_none_is_refused(limit: int) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^limit is "):
        EventDecoder(limit=limit)
