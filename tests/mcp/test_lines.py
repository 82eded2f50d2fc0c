import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.mcp._lines import Line, LineBuffer, answered_id


def fed(pieces: list[bytes], limit: int = 1_000) -> list[Line]:
    buffer = LineBuffer(limit)
    return [line for piece in pieces for line in buffer.feed(piece)]


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\r", b"\n")), max_size=12))
def test_any_split_gives_the_same_lines(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert fed(pieces) == fed([whole]) == [Line(each) for each in whole.split(b"\n")[:-1]]


@given(st.integers(1, 50), st.integers(300, 2_000))
def test_of_a_line_that_is_too_long_both_ends_are_kept(size: int, length: int) -> None:
    text = b"HEAD" + b"x" * length + b"TAIL"
    data = text + b"\nnext\n"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    lines = fed(pieces, limit=280)
    (first, second) = lines
    assert not first.whole
    assert first.text.startswith(b"HEAD")
    assert first.text.endswith(b"TAIL")
    assert len(first.text) < 600
    assert second == Line(b"next")


def test_a_long_line_in_small_pieces_is_read_in_linear_time() -> None:
    piece, start = b"x" * 4096, time.perf_counter()
    buffer = LineBuffer()
    for _ in range(2_560):
        assert not list(buffer.feed(piece))
    (line,) = buffer.feed(b"\n")
    assert len(line.text) == 10 * 1024 * 1024
    assert time.perf_counter() - start < 2


deep = "[" * 10_000 + "]" * 10_000


@pytest.mark.rule("R-MCP-10")
@pytest.mark.parametrize(
    ("text", "id"),
    [
        (f'{{"jsonrpc":"2.0","id":7,"result":{deep}}}', 7),
        (f'{{"result":{deep},"jsonrpc":"2.0","id":8}}', 8),
        (f'{{"result":{deep}, "id" : "a-9" }}', "a-9"),
        ('{"jsonrpc":"2.0","id":-3,', -3),
        ('  {"jsonrpc":"2.0","id":1,', 1),
        ('{"method":"ping","id":5,', None),
        ('{"id":', None),
        ('["id":5,', None),
        ("Listening on 8000", None),
        ("", None),
    ],
)
def test_an_unreadable_answer_tells_whose_it_is(text: str, id: int | str | None) -> None:
    assert answered_id(text.encode()) == id


@given(st.binary(max_size=600))
def test_any_bytes_at_all_are_looked_at_without_an_error(text: bytes) -> None:
    answered_id(text)
    answered_id(b"{" + text)


@given(st.integers(-(10**17), 10**17) | st.text("abc-_0", min_size=1, max_size=20))
def test_every_id_is_found(id: int | str) -> None:
    head = json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}).encode()
    tail = json.dumps({"result": {"x": "y" * 1_000}, "jsonrpc": "2.0", "id": id}).encode()
    assert answered_id(head) == answered_id(tail) == id
