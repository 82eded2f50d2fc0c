"""Streams as servers really send them, one oddity each, and what they must come to.

All are written by hand after what was seen or reported; the names say where.
"""

from __future__ import annotations

from typing import Final

import attrs

from harness._errors import DefectKind
from harness._usage import Usage
from tests.providers.server import DONE, payload, sse, stream_of

__all__ = ["CASES", "COUNTS", "PARIS", "ROME", "USED", "Case"]


@attrs.frozen(kw_only=True)
class Case:
    """A body, and its reply, its defect or its error."""

    name: str
    body: bytes
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name and arguments of each."""
    usage: Usage = Usage()
    defect: DefectKind | None = None
    error: str | None = None
    """A part of the error's message."""


def call(**fields: object) -> dict[str, object]:
    return payload(None, tool_calls=[fields])


def function(name: object = None, arguments: object = None) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


PARIS: Final = '{"city": "Paris"}'
ROME: Final = '{"city": "Rome"}'
COUNTS: Final = {"prompt_tokens": 22, "completion_tokens": 5}
USED: Final = Usage(input=22, output=5)
HEADER: Final = {"index": 0, "id": "a", "type": "function"}

CASES: Final = (
    Case(
        name="plain",
        body=stream_of(
            payload(role="assistant", content=""),
            payload(content="Par"),
            payload(content="is"),
            payload("stop"),
            {"choices": [], "usage": COUNTS},
        ),
        text="Paris",
        usage=USED,
    ),
    Case(
        name="finish reason and no end event (Gemini), CRLF",
        body=sse(payload(content="Paris"), payload("stop")).replace(b"\n", b"\r\n"),
        text="Paris",
    ),
    Case(
        name="an end event and no finish reason (Snowflake)",
        body=stream_of(
            payload(role="assistant", content="4", refusal="", tool_calls=None),
            payload(role="assistant", content="", refusal="", tool_calls=None),
            {"id": "", "created": 0, "choices": [], "usage": COUNTS},
        ),
        text="4",
        usage=USED,
    ),
    Case(name="neither of them", body=sse(payload(content="Par")), defect="unfinished"),
    Case(name="no event at all (llama-cpp-python)", body=b"", defect="unfinished"),
    Case(
        name="comments before and between (OpenRouter)",
        body=b": OPENROUTER PROCESSING\n\n" * 3
        + sse(payload(content="Paris"))
        + b": OPENROUTER PROCESSING\n\n"
        + stream_of(payload("stop")),
        text="Paris",
    ),
    Case(
        name="role null, role never, role on each",
        body=stream_of(
            payload(role=None, content="P"),
            payload(content="ar"),
            payload(role="assistant", content="i"),
            payload("stop", role="assistant", content="s"),
        ),
        text="Paris",
    ),
    Case(
        name="choices empty first (Azure), null, and missing",
        body=stream_of(
            {"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
            {"choices": None},
            {"id": "x"},
            payload("stop", content="Paris"),
        ),
        text="Paris",
    ),
    Case(
        name="usage on several chunks, once in an envelope (Groq)",
        body=stream_of(
            payload(content="Paris") | {"x_groq": {"id": "req"}},
            payload("stop") | {"x_groq": {"usage": {"prompt_tokens": 22, "completion_tokens": 4}}},
            {"choices": [], "usage": COUNTS},
        ),
        text="Paris",
        usage=USED,
    ),
    Case(
        name="usage in the choice (Moonshot)",
        body=stream_of(
            {"choices": [{"index": 0, "delta": {"content": "Paris"}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": COUNTS}]},
        ),
        text="Paris",
        usage=USED,
    ),
    Case(
        name="usage that makes no sense",
        body=stream_of(
            payload("stop", content="Paris"), {"choices": [], "usage": {"prompt_tokens": "many"}}
        ),
        text="Paris",
    ),
    Case(
        name="finish reason on several chunks, and the id changes (OpenRouter)",
        body=stream_of(
            {"id": "1"} | payload("stop", content="Par"),
            {"id": "2"} | payload("stop", content="is"),
        ),
        text="Paris",
    ),
    Case(
        name="delta null, delta missing, message beside it (Writer)",
        body=stream_of(
            {"choices": [{"index": 0, "delta": None}]},
            {
                "choices": [
                    {"index": 0, "delta": {"content": "Paris"}, "message": {"content": "Par"}}
                ]
            },
            {"choices": [{"index": 0, "message": {"content": "Paris"}, "finish_reason": "stop"}]},
        ),
        text="Paris",
    ),
    Case(
        name="several choices",
        body=stream_of(
            {"choices": [{"index": 1, "delta": {"content": "Rome"}}]},
            {
                "choices": [
                    {"index": 1, "delta": {"content": "!"}},
                    {"index": 0, "delta": {"content": "Paris"}},
                ]
            },
            {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]},
            payload("stop"),
        ),
        text="Paris",
    ),
    Case(
        name="content in parts, with thinking (Mistral)",
        body=stream_of(
            payload(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]),
            payload(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "."}]}]),
            payload(
                content=[{"type": "text", "text": "Pa"}, {"type": "reference", "ids": [1]}, "r"]
            ),
            payload("stop", content="is"),
        ),
        text="Paris",
        reasoning="Hm.",
    ),
    Case(
        name="reasoning_content (many)",
        body=stream_of(payload(reasoning_content="Hm"), payload("stop", content="Paris")),
        text="Paris",
        reasoning="Hm",
    ),
    Case(
        name="reasoning twice in one delta (OpenRouter)",
        body=stream_of(
            payload(reasoning="Hm", reasoning_details=[{"type": "reasoning.text", "text": "Hm"}]),
            payload(
                reasoning=None, reasoning_details=[{"type": "reasoning.summary", "summary": "!"}]
            ),
            payload(reasoning_details=[{"type": "reasoning.encrypted", "data": "=="}]),
            payload("stop", content="Paris"),
        ),
        text="Paris",
        reasoning="Hm!",
    ),
    Case(
        name="reasoning of a shape that nobody knows",
        body=stream_of(payload("stop", content="Paris", reasoning=5, reasoning_details="Hm")),
        text="Paris",
        reasoning="Hm",
    ),
    Case(
        name="a refusal",
        body=stream_of(payload(refusal="I will "), payload("stop", refusal="not.")),
        refusal="I will not.",
    ),
    Case(
        name="a refusal as a part",
        body=stream_of(payload("stop", content=[{"type": "refusal", "refusal": "No."}])),
        refusal="No.",
    ),
    Case(
        name="a call in pieces, argument by argument",
        body=stream_of(
            call(**HEADER, function=function("weather", "")),
            *(call(index=0, function={"arguments": letter}) for letter in PARIS[:3]),
            call(index=0, function={"arguments": PARIS[3:]}),
            payload("tool_calls"),
        ),
        calls=(("a", "weather", PARIS),),
    ),
    Case(
        name="a whole call in one delta (xAI, Ollama), finish reason stop",
        body=stream_of(call(**HEADER, function=function("weather", PARIS)), payload("stop")),
        calls=(("a", "weather", PARIS),),
    ),
    Case(
        name="two calls, no index, no type, everything in one chunk (Mistral)",
        body=stream_of(
            payload(
                "tool_calls",
                tool_calls=[
                    {"id": "a", "function": function("weather", PARIS)},
                    {"id": "b", "function": function("weather", ROME)},
                ],
            )
            | {"usage": COUNTS}
        ),
        calls=(("a", "weather", PARIS), ("b", "weather", ROME)),
        usage=USED,
    ),
    Case(
        name="id, type and name empty on later deltas, a stray index (Mistral, Qwen)",
        body=stream_of(
            call(**HEADER, function=function("weather", PARIS[:5])),
            payload(
                None,
                index=0,
                tool_calls=[
                    {"index": 0, "id": "", "type": "", "function": function("", PARIS[5:])}
                ],
            ),
            call(index=0, id="", function=function("", "")),
            payload("tool_calls"),
        ),
        calls=(("a", "weather", PARIS),),
    ),
    Case(
        name="id, type and name null on later deltas, first arguments null (Writer, SGLang)",
        body=sse(
            call(**HEADER, function=function("weather")),
            call(index=0, id=None, type=None, function=function(None, PARIS)),
            payload("tool_calls"),
        ),
        calls=(("a", "weather", PARIS),),
    ),
    Case(
        name="id and name repeated, a legacy duplicate, tool_calls null (llama-cpp-python)",
        body=stream_of(
            payload(role="assistant", content=None, tool_calls=None),
            *(
                payload(
                    None,
                    role=None,
                    content=None,
                    function_call=function("weather", piece),
                    tool_calls=[HEADER | {"function": function("weather", piece)}],
                )
                for piece in (PARIS[:7], PARIS[7:], "")
            ),
            payload("tool_calls", tool_calls=None),
        ),
        calls=(("a", "weather", PARIS),),
    ),
    Case(
        name="function null first, the name later (vLLM)",
        body=stream_of(
            call(index=0, id="a", type="function", function=None),
            call(index=0, function=function(None, PARIS[:4])),
            call(index=0, id=None, function=function("weather", PARIS[4:])),
            payload("tool_calls"),
        ),
        calls=(("a", "weather", PARIS),),
    ),
    Case(
        name="arguments null and never anything else",
        body=stream_of(call(**HEADER, function=function("now")), payload("tool_calls")),
        calls=(("a", "now", ""),),
    ),
    Case(
        name="arguments as an object",
        body=stream_of(
            call(**HEADER, function=function("weather", {"city": "Paris"})), payload("tool_calls")
        ),
        calls=(("a", "weather", '{"city":"Paris"}'),),
    ),
    Case(
        name="first index 1, then 3 (gateways of Anthropic)",
        body=stream_of(
            call(index=1, id="a", function=function("weather", PARIS)),
            call(index=3, id="b", function=function("weather", ROME)),
            payload("tool_calls"),
        ),
        calls=(("a", "weather", PARIS), ("b", "weather", ROME)),
    ),
    Case(
        name="index 0 for every call",
        body=stream_of(
            call(index=0, id="a", function=function("weather", PARIS)),
            call(index=0, id="b", function=function("weather", ROME)),
            payload("tool_calls"),
        ),
        calls=(("a", "weather", PARIS), ("b", "weather", ROME)),
    ),
    Case(
        name="a call without an id (Gemini)",
        body=sse(call(index=0, function=function("weather", PARIS)), payload("stop")),
        defect="malformed_tool_call",
    ),
    Case(
        name="only the legacy call",
        body=stream_of(
            payload(function_call=function("weather", PARIS[:6])),
            payload(function_call={"arguments": PARIS[6:]}),
            payload("function_call", function_call=None),
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="the first piece of the arguments lost (vLLM)",
        body=stream_of(
            call(**HEADER, function=function("weather", PARIS[3:])), payload("tool_calls")
        ),
        defect="malformed_tool_call",
    ),
    Case(
        name="arguments cut by length",
        body=stream_of(call(**HEADER, function=function("weather", PARIS[:9])), payload("length")),
        defect="truncated",
    ),
    Case(
        name="an end inside the arguments (llmock)",
        body=sse(call(**HEADER, function=function("weather", PARIS[:9]))),
        defect="unfinished",
    ),
    Case(
        name="an error event, nothing else (Groq)",
        body=sse(payload(content="Let me see."))
        + b"event: error\n"
        + sse(
            {"error": {"message": "Failed to call", "code": "tool_use_failed", "status_code": 400}}
        ),
        error="Failed to call",
    ),
    Case(
        name="an error event that is no JSON",
        body=b"event: error\ndata: overloaded\n\n",
        error="overloaded",
    ),
    Case(
        name="an error in a chunk after two finish reasons, then the end event (OpenRouter)",
        body=stream_of(
            payload("error", content=""),
            payload("error") | {"error": {"code": 502, "message": "Upstream died"}},
        ),
        error="finish reason 'error'",
    ),
    Case(
        name="an error in a chunk with empty choices, read as success elsewhere",
        body=stream_of(
            payload(content="Par"), {"choices": [], "error": {"code": 500, "message": "Broken"}}
        ),
        error="Broken",
    ),
    Case(
        name="an error in the choice",
        body=stream_of({"choices": [{"index": 0, "delta": {}, "error": {"message": "Broken"}}]}),
        error="Broken",
    ),
    Case(
        name="an error object without an envelope (vLLM)",
        body=stream_of({"object": "error", "message": "Broken", "code": 400}),
        error="Broken",
    ),
    Case(
        name="200, a role, an error, no end event (llama.cpp)",
        body=sse(
            payload(role="assistant", content=None),
            {
                "error": {
                    "code": 500,
                    "message": "The model broke the format",
                    "type": "server_error",
                }
            },
        ),
        error="broke the format",
    ),
    Case(
        name="error null beside a good chunk",
        body=stream_of(payload("stop", content="Paris") | {"error": None}),
        text="Paris",
    ),
    Case(
        name="a chunk that is no JSON (llmock)",
        body=sse(payload(content="Par")) + b'data: {"system_f\n\n' + stream_of(payload("stop")),
        error="not JSON",
    ),
    Case(
        name="half a chunk, then the end of the body",
        body=sse(payload(content="Par")) + b'data: {"choices": [{"del',
        error="not JSON",
    ),
    Case(
        name="an unfinished last line that is whole",
        body=(sse(payload(content="Paris")) + DONE).rstrip(b"\n"),
        text="Paris",
    ),
    Case(
        name="several data lines in one event, ids, empty data (Replicate)",
        body=b"event: output\nid: 1:0\ndata: \n\n"
        b'event: output\nid: 2:0\ndata: {"choices": [{"delta":\ndata: {"content": "Paris"}}]}\n\n'
        + DONE,
        text="Paris",
    ),
    Case(
        name="a ping (gateways of Anthropic)",
        body=b'event: ping\ndata: {"type": "ping"}\n\n'
        + stream_of(payload("stop", content="Paris")),
        text="Paris",
    ),
)
