"""More odd streams, of calls above all, and what they must come to.

Written by hand, like those in `streams`; a name says what is odd and, in brackets, at which kind
of server. A call that cannot be told for certain is a defect, though a guess would often be right.
"""

from __future__ import annotations

import json
from typing import Final

from harness._usage import Usage
from tests.providers.server import DONE, payload, sse, stream_of
from tests.providers.streams import CASES, COUNTS, PARIS, ROME, USED, Case

__all__ = ["SHAPES"]

A: Final = {"id": "a", "type": "function", "name": "weather"}
B: Final = {"id": "b", "type": "function", "name": "weather"}
BOTH: Final = (("a", "weather", PARIS), ("b", "weather", ROME))
ONE: Final = (("a", "weather", PARIS),)
CALLED: Final = payload("tool_calls")


def piece(arguments: object = None, /, **fields: object) -> dict[str, object]:
    """One piece of a call; name and arguments go where they belong, if they are there."""
    function = {"name": fields.pop("name")} if "name" in fields else {}
    if arguments is not None:
        function["arguments"] = arguments
    return fields | ({"function": function} if function else {})


def says(*pieces: dict[str, object], reason: str | None = None) -> dict[str, object]:
    return payload(reason, tool_calls=list(pieces))


def in_order(*pieces: dict[str, object], end: object = CALLED) -> bytes:
    """A stream of one piece in each chunk."""
    return stream_of(*map(says, pieces), end)


INDEXES: Final = (
    Case(
        name="the only call has index 1 (bridges of another API, after its reasoning item)",
        body=in_order(
            piece("", index=1, **A), piece(PARIS[:8], index=1), piece(PARIS[8:], index=1)
        ),
        calls=ONE,
    ),
    Case(
        name="indexes 1 and 2 (block numbers passed on), interleaved",
        body=in_order(
            piece("", index=1, **A),
            piece("", index=2, **B),
            piece(ROME[:8], index=2),
            piece(PARIS[:8], index=1),
            piece(ROME[8:], index=2),
            piece(PARIS[8:], index=1),
        ),
        calls=BOTH,
    ),
    Case(
        name="no index on parallel calls, one in each chunk (Gemini)",
        body=in_order(piece(PARIS, **A), piece(ROME, **B), end=payload("stop")),
        calls=BOTH,
    ),
    Case(
        name="no index, and nothing but order to tell the pieces apart",
        body=in_order(
            piece("", **A), piece(PARIS[:8]), piece(PARIS[8:]),
            piece("", index=None, **B), piece(ROME[:8], id=None), piece(ROME[8:], id=""),
        ),
        calls=BOTH,
    ),
    Case(
        name="index only on the first piece of each",
        body=in_order(
            piece("", index=0, **A), piece(PARIS), piece("", index=1, **B), piece(ROME)
        ),
        calls=BOTH,
    ),
    Case(
        name="neither index nor id on two calls",
        body=in_order(piece(PARIS, name="weather"), piece(ROME, name="weather")),
        defect="malformed_tool_call",
    ),
    Case(
        name="index 0 for every call, in pieces (proxies)",
        body=in_order(
            piece("", index=0, **A), piece(PARIS[:8], index=0), piece(PARIS[8:], index=0),
            piece("", index=0, **B), piece(ROME[:8], index=0), piece(ROME[8:], index=0),
        ),
        calls=BOTH,
    ),
    Case(
        name="index 0 for every call, all of them in one chunk (proxies)",
        body=stream_of(
            says(
                piece(PARIS, index=0, **A),
                piece({}, index=0, id="c", name="now"),
                piece(ROME, index=0, **B),
                reason="tool_calls",
            )
        ),
        calls=(("a", "weather", PARIS), ("c", "now", "{}"), ("b", "weather", ROME)),
    ),
    Case(
        name="index 0 for every call, id and name with every piece",
        body=in_order(
            piece(PARIS[:8], index=0, **A), piece(PARIS[8:], index=0, **A),
            piece(ROME[:8], index=0, **B), piece(ROME[8:], index=0, **B),
        ),
        calls=BOTH,
    ),
    Case(
        name="index 0 for every call, interleaved",
        body=in_order(
            piece(PARIS[:8], index=0, **A), piece(ROME[:8], index=0, **B),
            piece(PARIS[8:], index=0, **A), piece(ROME[8:], index=0, **B),
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="index 0 for every call, and the first has no arguments, or not yet",
        body=in_order(piece("", index=0, **A), piece(ROME, index=0, **B)),
        defect="malformed_tool_call",
    ),
    Case(
        name="argument pieces on an index that rises (Nebius, Cerebras)",
        body=in_order(
            piece("", index=0, **A), piece(PARIS[:8], index=1), piece(PARIS[8:], index=2)
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="the last argument piece one index too high (Nebius)",
        body=in_order(
            piece("", index=0, **A), piece(PARIS[:8], index=0), piece(PARIS[8:], index=1)
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="arguments one index too high, where the next call would take them over",
        body=in_order(piece("", index=0, **A), piece(PARIS, index=1), piece("", index=1, **B)),
        defect="malformed_tool_call",
    ),
    Case(
        name="two calls with one id",
        body=in_order(piece(PARIS, index=0, **A), piece(ROME, index=1, **A)),
        defect="malformed_tool_call",
    ),
)  # fmt: skip

HEADERS: Final = (
    Case(
        name="the id after the name",
        body=in_order(
            piece("", index=0, name="weather"),
            piece(PARIS[:8], index=0, id=None),
            piece(PARIS[8:], index=0, id="a"),
        ),
        calls=ONE,
    ),
    Case(
        name="the name after the arguments",
        body=in_order(
            piece(index=0, id="a", type="function"),
            piece(PARIS[:8], index=0),
            piece(PARIS[8:], index=0, name="weather"),
        ),
        calls=ONE,
    ),
    Case(
        name="id, function and name null, the header later (vLLM)",
        body=in_order(
            {"index": 0, "id": None, "type": "function", "function": None},
            piece(None, index=0, id=None, name=None),
            piece("", index=0, **A),
            piece(PARIS, index=0, id=None, name=None),
        ),
        calls=ONE,
    ),
    Case(
        name="id and name null on all but the first (SGLang)",
        body=in_order(
            piece("", index=0, **A),
            piece(PARIS[:8], index=0, id=None, type=None, name=None),
            piece(PARIS[8:], index=0, id=None, type=None, name=None),
        ),
        calls=ONE,
    ),
    Case(
        name="the name in full with every piece, the id only once",
        body=in_order(
            piece("", index=0, **A),
            piece(PARIS[:8], index=0, name="weather"),
            piece(PARIS[8:], index=0, name="weather"),
        ),
        calls=ONE,
    ),
    Case(
        name="a new id with every piece",
        body=in_order(
            piece("", index=0, **A),
            piece(PARIS[:8], index=0, id="a1"),
            piece(PARIS[8:], index=0, id="a2"),
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="a new id and the name in full with every piece",
        body=in_order(
            piece("", index=0, **A),
            piece(PARIS[:8], index=0, id="a1", name="weather"),
            piece(PARIS[8:], index=0, id="a2", name="weather"),
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="ids that are empty from first to last",
        body=in_order(piece(PARIS, index=0, id="", name="weather")),
        defect="malformed_tool_call",
    ),
    Case(
        name="the text null for a name on later pieces, a type in capitals (proxies)",
        body=in_order(
            piece("", index=0, id="a", type="FUNCTION", name="weather"),
            piece(PARIS, index=0, id=None, type="FUNCTION", name="null"),
        ),
        calls=ONE,
    ),
    Case(
        name="the text null for a name first, the name later",
        body=in_order(
            piece("", index=0, id="a", type="FUNCTION", name="null"),
            piece(PARIS, index=0, name="weather"),
        ),
        calls=ONE,
    ),
    Case(
        name="the text null for a name, and never another (proxies)",
        body=in_order(piece(PARIS, index=0, id="a", type="FUNCTION", name="null")),
        defect="malformed_tool_call",
    ),
)

ARGUMENTS: Final = (
    Case(
        name="arguments null first and last",
        body=stream_of(
            says({"index": 0, "id": "a", "function": {"name": "weather", "arguments": None}}),
            says(piece(PARIS, index=0)),
            says({"index": 0, "function": {"name": None, "arguments": None}}),
            CALLED,
        ),
        calls=ONE,
    ),
    Case(
        name="arguments null on parallel calls, and never anything else",
        body=stream_of(
            says({"index": 0, "id": "a", "function": {"name": "now", "arguments": None}}),
            says({"index": 1, "id": "b", "function": {"name": "date", "arguments": None}}),
            CALLED,
        ),
        calls=(("a", "now", ""), ("b", "date", "")),
    ),
    Case(
        name="the braces of no arguments in one piece, as a text and as an object",
        body=in_order(
            piece("{}", index=0, id="a", name="now"), piece({}, index=1, id="b", name="now")
        ),
        calls=(("a", "now", "{}"), ("b", "now", "{}")),
    ),
    Case(
        name="empty braces before the arguments (gateways of Anthropic)",
        body=in_order(piece("{}", index=0, **A), piece(PARIS, index=0)),
        defect="malformed_tool_call",
    ),
    Case(
        name="the whole arguments once more at the end (Cerebras)",
        body=in_order(
            piece("", index=0, **A), piece(PARIS[:8], index=0), piece(PARIS[8:], index=0),
            piece(PARIS, index=0, **A),
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="all arguments so far with every piece",
        body=in_order(
            piece(PARIS[:4], index=0, **A), piece(PARIS[:8], index=0), piece(PARIS, index=0)
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="the first piece lost of the second call's arguments (vLLM)",
        body=in_order(piece(PARIS, index=0, **A), piece(ROME[9:], index=1, **B)),
        defect="malformed_tool_call",
    ),
    Case(
        name="tokens run out in the second call's arguments",
        body=in_order(
            piece(PARIS, index=0, **A), piece(ROME[:8], index=1, **B), end=payload("length")
        ),
        defect="truncated",
    ),
    Case(
        name="an end event in the middle of the arguments (llama-cpp-python, interrupted)",
        body=in_order(piece(PARIS[:8], index=0, **A), end={"choices": []}),
        defect="malformed_tool_call",
    ),
    Case(
        name="a legacy call beside tool_calls that are null",
        body=stream_of(
            payload(tool_calls=None, function_call={"name": "weather:", "arguments": PARIS}),
            payload("function_call"),
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="a legacy call with another name beside the call (llama-cpp-python)",
        body=stream_of(
            says(piece(PARIS, index=0, **A)) | {"id": "x"},
            payload(
                tool_calls=[piece("", index=0, **A)],
                function_call={"name": "weather:", "arguments": PARIS},
            ),
            CALLED,
        ),
        calls=ONE,
    ),
    Case(
        name="all calls in a message beside each delta (Writer)",
        body=sse(
            *(
                {
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"tool_calls": [each]},
                            "message": {"tool_calls": [piece(PARIS, index=0, **A)]},
                            "finish_reason": reason,
                        }
                    ]
                }
                for each, reason in (
                    (piece(PARIS[:8], index=0, **A), None),
                    (piece(PARIS[8:], index=0, id=None), "tool_calls"),
                )
            )
        ),
        calls=ONE,
    ),
    Case(
        name="text and a role around two calls",
        body=stream_of(
            payload(role="assistant", content="First "),
            payload(role="assistant", content="", tool_calls=[piece(PARIS, index=0, **A)]),
            payload(role="assistant", content="then", tool_calls=[]),
            payload(role=None, content=None, tool_calls=[piece(ROME, index=1, **B)]),
            CALLED,
        ),
        text="First then",
        calls=BOTH,
    ),
)  # fmt: skip

ENDS: Final = (
    Case(
        name="a finish reason on each chunk of a call",
        body=stream_of(
            says(piece("", index=0, **A), reason="tool_calls"),
            says(piece(PARIS, index=0), reason="tool_calls"),
            payload("stop"),
        ),
        calls=ONE,
    ),
    Case(
        name="a finish reason on each chunk, and the last is the true one",
        body=stream_of(payload("stop", content="Pa"), payload("length", content="ris")),
        text="Paris",
    ),
    Case(
        name="a finish reason that is empty until the last chunk",
        body=stream_of(payload("", content="Pa"), payload("", content="ris"), payload("stop")),
        text="Paris",
    ),
    Case(
        name="a call, an end event and never a finish reason",
        body=stream_of(says(piece(PARIS, index=0, **A)), {"choices": [], "usage": COUNTS}),
        calls=ONE,
        usage=USED,
    ),
    Case(
        name="a whole call, then neither finish reason nor end event",
        body=sse(says(piece(PARIS, index=0, **A)), {"choices": [], "usage": COUNTS}),
        defect="unfinished",
    ),
    Case(
        name="a role, and the end event",
        body=stream_of(payload(role="assistant", content=""), payload("stop")),
        defect="empty",
    ),
    Case(
        name="a whole reply as an event, where deltas belong",
        body=stream_of({"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}]}),
        defect="empty",
    ),
    Case(
        name="more after the end event",
        body=stream_of(payload("stop", content="Paris")) + stream_of(payload(content=" or Rome")),
        text="Paris",
    ),
    Case(
        name="an end event with spaces around, and no blank line",
        body=sse(payload(content="Paris")) + b"data:  [DONE]  ",
        text="Paris",
    ),
)

USAGES: Final = (
    Case(
        name="usage null on every chunk but the last",
        body=stream_of(
            payload(content="Paris") | {"usage": None},
            payload("stop") | {"usage": None},
            {"choices": [], "usage": COUNTS},
        ),
        text="Paris",
        usage=USED,
    ),
    Case(
        name="running totals of usage on every chunk",
        body=stream_of(
            *(
                payload(content=text) | {"usage": COUNTS | {"completion_tokens": count}}
                for count, text in enumerate(("P", "ar", "is"), 3)
            ),
            payload("stop"),
        ),
        text="Paris",
        usage=Usage(input=22, output=5),
    ),
    Case(
        name="usage alone, before and between the text",
        body=stream_of(
            {"choices": [], "usage": {"prompt_tokens": 22, "completion_tokens": 0}},
            payload(content="Paris"),
            {"choices": [], "usage": COUNTS},
            payload("stop"),
        ),
        text="Paris",
        usage=USED,
    ),
    Case(
        name="usage in the envelope only (Groq)",
        body=stream_of(payload("stop", content="Paris") | {"x_groq": {"usage": COUNTS}}),
        text="Paris",
        usage=USED,
    ),
    Case(
        name="choices empty in the middle, without usage (moderation)",
        body=stream_of(
            payload(content="Par"),
            {"choices": [], "moderation": {"flagged": False}},
            payload("stop", content="is"),
        ),
        text="Paris",
    ),
)

ERRORS: Final = (
    Case(
        name="an error after two finish reasons, then the end event (OpenRouter)",
        body=stream_of(
            payload("stop", content="Paris"),
            payload("stop", content=""),
            payload(content="") | {"error": {"code": 502, "message": "Upstream died"}},
        ),
        error="Upstream died",
    ),
    Case(
        name="an error in a call, with empty choices (proxies)",
        body=stream_of(
            says(piece(PARIS, index=0, **A)),
            {"choices": [], "error": {"message": "Broken"}, "usage": COUNTS},
            CALLED,
        ),
        error="Broken",
    ),
    Case(
        name="an error that is a text",
        body=stream_of(payload(content="Par"), {"error": "overloaded"}, payload("stop")),
        error="overloaded",
    ),
    Case(
        name="an error event with nothing in it, and a good end",
        body=sse(payload("stop", content="Paris")) + b"event: error\ndata:\n\n" + DONE,
        error="an error event without a word",
    ),
    Case(
        name="an error event without data, and a good end",
        body=sse(payload("stop", content="Paris")) + b"event: error\n\n" + DONE,
        error="an error event without a word",
    ),
    Case(
        name="an error event that looks like a chunk",
        body=b"event: error\n" + sse(payload("stop", content="Sorry")),
        error="Sorry",
    ),
    Case(
        name="errors that are empty",
        body=stream_of(payload(content="Par") | {"error": {}}, payload("stop") | {"error": ""}),
        text="Par",
    ),
)

TEXTS: Final = (
    Case(
        name="reasoning before any role, and in the chunk of the first text",
        body=stream_of(
            payload(reasoning_content="H"),
            payload(role="assistant", content=None, reasoning_content="m"),
            payload(content="Pa", reasoning_content="."),
            payload("stop", content="ris", reasoning_content=None),
        ),
        text="Paris",
        reasoning="Hm.",
    ),
    Case(
        name="reasoning by another name, the first of them empty (Ollama, Groq)",
        body=stream_of(
            payload(reasoning_content="", reasoning="H"),
            payload(reasoning_content=None, reasoning="", reasoning_details=[{"text": "m"}]),
            payload("stop", content="Paris"),
        ),
        text="Paris",
        reasoning="Hm",
    ),
    Case(
        name="content that is an empty list, and text beside a call in parts (Mistral)",
        body=stream_of(
            payload(content=[]),
            payload(
                content=[{"type": "text", "text": "Look"}],
                tool_calls=[piece(PARIS, index=0, **A)],
            ),
            CALLED,
        ),
        text="Look",
        calls=ONE,
    ),
    Case(
        name="characters of several bytes, escaped and not",
        body=sse(payload(content="Là-bas "))
        + b"data: "
        + json.dumps(payload("stop", content="🗼é"), ensure_ascii=False).encode()
        + b"\n\n"
        + DONE,
        text="Là-bas 🗼é",
    ),
)


def framed(*lines: bytes, end: bytes = b"\n") -> bytes:
    return b"".join(line + end for line in lines)


CHUNK: Final = json.dumps(payload("stop", content="Paris")).encode()
SPREAD: Final = json.dumps(json.loads(CHUNK), indent=1).encode().split(b"\n")
FRAMES: Final = (
    Case(
        name="CR and nothing else",
        body=framed(b": hello", b"", b"data: " + CHUNK, b"", b"data: [DONE]", b"", end=b"\r"),
        text="Paris",
    ),
    Case(
        name="CRLF, comments, ids, names and times to retry, no end event (Perplexity)",
        body=framed(
            b"retry: 3000", b": ping", b"", b"id: 1", b"event: message", b"data: " + CHUNK,
            b": ping", b"", b": ping", b"", end=b"\r\n",
        ),
        text="Paris",
    ),
    Case(
        name="one event over several data lines, a comment among them, no space",
        body=framed(
            *(b"data:" + line for line in SPREAD),
            b": still here", b"", b"data:[DONE]", b"",
        ),
        text="Paris",
    ),
    Case(
        name="a byte-order mark, line ends of every kind, empty events",
        body=b"\xef\xbb\xbfdata: " + CHUNK + b"\r\n\n\r\r\ndata:\n\nid\n\n" + DONE,
        text="Paris",
    ),
)  # fmt: skip

SHAPES: Final = (
    *CASES, *INDEXES, *HEADERS, *ARGUMENTS, *ENDS, *USAGES, *ERRORS, *TEXTS, *FRAMES,
)  # fmt: skip
"""All of them."""
