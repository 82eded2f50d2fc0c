"""A real server takes as a forced tool what the sanitizer makes of odd schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness._cli._local import MODEL_NAME, open_local_server
from harness.tools import check_strict_dialect, sanitize_tool_schema

NULLABLE = {"type": ["string", "null"], "minLength": 1}
ODD: dict[str, Any] = {
    "no schema": None,
    "all that is odd": {
        "type": ["object", "null"],
        "properties": {
            **dict.fromkeys(("properties", "type", "required"), NULLABLE),
            "several": {"type": ["integer", "boolean", "null"]},
            "numbers": {"enum": [1, 2]},
            "texts": {"enum": ["x", None]},
            "either": {
                "oneOf": [
                    {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
                    {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
                ]
            },
            "below": {"type": ["object", "null"], "properties": {"b": {"type": "integer"}}},
            "again": {"$ref": "#/properties/below/properties/b"},
        },
        "required": ["type", "several", "numbers", "texts", "either", "again", "ghost", "type"],
    },
}


@pytest.mark.rule("R-SCHEMA-06")
@pytest.mark.local_model
async def test_the_real_server_takes_odd_schemas_once_they_are_sanitized(model_file: Path) -> None:
    async with (
        open_local_server(model_file) as server,
        httpx2.AsyncClient(base_url=server.base_url, trust_env=False, timeout=60) as client,
    ):
        for name, schema in ODD.items():
            parameters = sanitize_tool_schema(schema)
            assert check_strict_dialect(parameters) == ()
            answer = await client.post(
                "/chat/completions",
                json={
                    "model": MODEL_NAME,
                    "messages": [{"role": "user", "content": "Call the tool."}],
                    "tools": [
                        {
                            "type": "function",
                            "function": {"name": "it", "description": "", "parameters": parameters},
                        }
                    ],
                    "tool_choice": "required",
                    "parallel_tool_calls": False,
                    "max_tokens": 24,
                    "temperature": 0,
                },
            )
            assert answer.status_code == 200, (name, answer.text)
            call = answer.json()["choices"][0]["message"]["tool_calls"][0]
            # What it asks for may be cut off; that the schema bound it shows in how it begins.
            assert call["function"]["name"] == "it", name
            assert call["function"]["arguments"].startswith("{"), name
