"""Tools: how they are defined, checked, called, and answered."""

from harness.tools._definition import PolicyOptions, Tool, define_tool
from harness.tools._function import FunctionTool, tool
from harness.tools._object_schema import ObjectSchema
from harness.tools._results import render_outcome, tool_result_message
from harness.tools._schema import ArgIssue, ArgsInvalid, Schema
from harness.tools._toolset import ToolList, as_toolset
from harness.tools._type_schema import TypeSchema

__all__ = [
    "ArgIssue",
    "ArgsInvalid",
    "FunctionTool",
    "ObjectSchema",
    "PolicyOptions",
    "Schema",
    "Tool",
    "ToolList",
    "TypeSchema",
    "as_toolset",
    "define_tool",
    "render_outcome",
    "tool",
    "tool_result_message",
]
