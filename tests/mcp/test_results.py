from typing import Any

import pytest
from mcp import MCPError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import ValidationError

from harness._messages import FAILURE_KINDS
from harness._toolset import Outcome
from harness.mcp._results import ERROR_ROWS, UNKNOWN_EFFECT, failure_of, outcome_of_result


def outcome(*content: ContentBlock, structured: Any = None, is_error: bool = False) -> Outcome:
    return outcome_of_result(
        CallToolResult(content=list(content), structured_content=structured, is_error=is_error)
    )


def text(*texts: str) -> list[ContentBlock]:
    return [TextContent(text=each) for each in texts]


@pytest.mark.rule("R-MCP-08")
@pytest.mark.parametrize(
    ("texts", "structured", "data"),
    [
        ([], None, None),
        (["a"], None, "a"),
        (["a", "b"], None, ["a", "b"]),
        ([], {"n": 1}, {"n": 1}),
        (['{"n": 1}'], {"n": 1}, {"n": 1}),
        (["5"], {"result": 5}, {"result": 5}),
        (["hi"], {"content": "hi"}, {"content": "hi"}),
        (["1", "2"], {"result": [1, 2]}, {"result": [1, 2]}),
        (["a", "b"], ["a", "b"], ["a", "b"]),
        (["see"], {"n": 1}, {"structuredContent": {"n": 1}, "content": "see"}),
        (["see", "too"], {"n": 1}, {"structuredContent": {"n": 1}, "content": ["see", "too"]}),
    ],
)
def test_text_and_structured_content_are_the_data(
    texts: list[str], structured: Any, data: Any
) -> None:
    assert outcome(*text(*texts), structured=structured) == Outcome.completed(data)


@pytest.mark.rule("R-MCP-08")
@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            ImageContent(data="AA", mime_type="image/png"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        ),
        (
            AudioContent(data="AA", mime_type="audio/mpeg"),
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}},
        ),
        (
            AudioContent(data="AA", mime_type="audio/ogg"),
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "ogg"}},
        ),
        (
            EmbeddedResource(
                resource=BlobResourceContents(uri="f:///a/b.pdf", blob="AA", mime_type="a/pdf")
            ),
            {
                "type": "file",
                "file": {"filename": "b.pdf", "file_data": "data:a/pdf;base64,AA"},
            },
        ),
        (
            EmbeddedResource(resource=BlobResourceContents(uri="f:///", blob="AA")),
            {
                "type": "file",
                "file": {
                    "filename": "resource",
                    "file_data": "data:application/octet-stream;base64,AA",
                },
            },
        ),
        (
            EmbeddedResource(
                resource=BlobResourceContents(uri="f:///a", blob="AA", mime_type="image/gif")
            ),
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,AA"}},
        ),
    ],
)
def test_bytes_become_content_parts(block: ContentBlock, part: Any) -> None:
    assert outcome(block) == Outcome.completed(None, parts=[part])
    assert outcome(*text("a"), block) == Outcome.completed("a", parts=[part])


@pytest.mark.rule("R-MCP-08")
def test_a_link_beside_structured_content_is_kept() -> None:
    link = ResourceLink(name="page", uri="https://x.org/")
    both = outcome(link, structured={"n": 1})
    assert both.data == {
        "structuredContent": {"n": 1},
        "content": {"uri": "https://x.org/", "name": "page"},
    }


@pytest.mark.rule("R-MCP-08")
def test_resources_that_are_text_or_links_are_data() -> None:
    link = ResourceLink(name="page", uri="https://x.org/", mime_type="text/html")
    inner = EmbeddedResource(resource=TextResourceContents(uri="file:///a", text="in it"))
    assert outcome(link, inner) == Outcome.completed(
        [
            {"uri": "https://x.org/", "name": "page", "mimeType": "text/html"},
            {"uri": "file:///a", "text": "in it"},
        ]
    )


@pytest.mark.rule("R-MCP-09")
@pytest.mark.parametrize(
    ("content", "error"),
    [
        (text("no", "way"), "no\nway"),
        (text(""), "the tool failed and did not say why"),
        ([ImageContent(data="A", mime_type="image/png")], "the tool failed and did not say why"),
    ],
)
def test_an_error_of_the_tool_is_a_failure_of_kind_external(
    content: list[ContentBlock], error: str
) -> None:
    assert outcome(*content, is_error=True) == Outcome.failed(error, "external")


def test_a_call_that_asks_for_more_input_has_failed() -> None:
    asked = InputRequiredResult(input_requests={}, request_state="x")
    assert outcome_of_result(asked).failure_kind == "external"


@pytest.mark.rule("R-MCP-09")
@pytest.mark.parametrize("row", ERROR_ROWS, ids=lambda row: str(row.code))
def test_each_row_of_the_table_decides_its_code(row: Any) -> None:
    code = -1 if row.code is None else row.code
    failed = failure_of("s", MCPError(code=code, message="because"))
    assert failed.failure_kind == row.kind
    assert failed.error.startswith(f"{row.text} (s): because")
    assert (UNKNOWN_EFFECT in failed.error) is not row.effect_known


def test_the_table_ends_with_every_other_code_and_has_each_once() -> None:
    codes = [row.code for row in ERROR_ROWS]
    assert codes[-1] is None
    assert len(set(codes)) == len(codes)
    assert {row.kind for row in ERROR_ROWS} <= set(FAILURE_KINDS)


@pytest.mark.rule("R-MCP-09")
def test_what_is_no_error_of_the_protocol_leaves_the_effect_unknown() -> None:
    with pytest.raises(ValidationError) as raised:
        CallToolResult.model_validate({"content": 5})
    unread = failure_of("s", raised.value)
    assert unread.failure_kind == "external"
    assert unread.error.startswith("the server's answer could not be read (s): it is not what")
    broken = failure_of("s", OSError("secret path"))
    assert "OSError" in broken.error
    assert "secret" not in broken.error
    assert UNKNOWN_EFFECT in broken.error
