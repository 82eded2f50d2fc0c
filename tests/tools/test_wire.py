from __future__ import annotations

from typing import Any

import pytest

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness._toolset import Outcome
from harness.tools import check_strict_dialect, define_tool, tool, tool_wire_definition
from tests.tools.contexts import run


@tool
async def search(query: str, folder: str | None = None) -> str | None:
    """Search."""
    return folder


@pytest.mark.rule("R-TOOL-12")
def test_the_wire_name_replaces_the_name() -> None:
    plain = tool_wire_definition(search)
    named: Any = tool_wire_definition(search, "files__search")
    assert plain == search.definition
    assert named == {
        "type": "function",
        "function": {**plain["function"], "name": "files__search"},  # type: ignore[dict-item]  # an object
    }
    assert tool_wire_definition(search) == plain


@pytest.mark.rule("R-TOOL-12")
@pytest.mark.parametrize("name", ["", "files.search", "x" * 65])
def test_a_wire_name_is_one_that_every_provider_takes(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"^'search' .* its name is .*, expected letters"):
        tool_wire_definition(search, name)


@pytest.mark.rule("R-TOOL-12")
async def test_the_schema_is_sanitized_and_the_check_keeps_the_original() -> None:
    remote: dict[str, JSON] = {
        "type": "object",
        "properties": {"folder": {"type": ["string", "null"]}},
        "required": ["folder", "ghost"],
    }
    odd = define_tool("odd", "", schema=remote, execute=lambda arguments, context: arguments)
    told: Any = tool_wire_definition(odd)["function"]
    assert told["parameters"]["properties"] == {
        "folder": {"anyOf": [{"type": "string"}, {"type": "null"}]}
    }
    assert check_strict_dialect(told["parameters"]) == ()
    assert odd.schema.json_schema() == remote
    assert await run(odd, {"folder": None}) == Outcome.failed(
        "ghost: required, but missing", "validation"
    )


@pytest.mark.rule("R-TOOL-12")
def test_a_nullable_parameter_is_a_union() -> None:
    told: Any = tool_wire_definition(search)["function"]
    assert told["parameters"]["properties"]["folder"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "default": None,
    }
    assert check_strict_dialect(told["parameters"]) == ()
