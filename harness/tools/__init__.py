"""Tools: how they are defined, checked, called, and answered."""

from harness._toolset import NormalizedCall, Normalizes
from harness.tools._definition import PolicyOptions, Tool, define_tool
from harness.tools._dialect import check_strict_dialect
from harness.tools._disclosure import (
    PluginCatalog,
    PluginSummary,
    initial_active_plugins,
    partition_plugin_catalog,
)
from harness.tools._function import FunctionTool, tool
from harness.tools._joined import JoinedToolset, join_toolsets
from harness.tools._normalize import Normalizer, normalize_call
from harness.tools._object_schema import ObjectSchema
from harness.tools._plugin import Plugin, PluginError, ToolPlugin, plugin_from_tools
from harness.tools._registry import ToolRegistry
from harness.tools._registry_toolset import RegistryToolset, disclosed
from harness.tools._rehydration import DroppedName, Rehydration, Resolve, rehydrate_activation
from harness.tools._results import render_outcome, tool_result_message
from harness.tools._rewrites import REWRITES, Rewrite
from harness.tools._sanitizer import sanitize_tool_schema
from harness.tools._schema import ArgIssue, ArgsInvalid, Schema
from harness.tools._search import SearchResult, ToolMatch
from harness.tools._toolset import ToolList, as_toolset
from harness.tools._type_schema import TypeSchema
from harness.tools._wire import definition_name, tool_wire_definition

__all__ = [
    "REWRITES",
    "ArgIssue",
    "ArgsInvalid",
    "DroppedName",
    "FunctionTool",
    "JoinedToolset",
    "NormalizedCall",
    "Normalizer",
    "Normalizes",
    "ObjectSchema",
    "Plugin",
    "PluginCatalog",
    "PluginError",
    "PluginSummary",
    "PolicyOptions",
    "RegistryToolset",
    "Rehydration",
    "Resolve",
    "Rewrite",
    "Schema",
    "SearchResult",
    "Tool",
    "ToolList",
    "ToolMatch",
    "ToolPlugin",
    "ToolRegistry",
    "TypeSchema",
    "as_toolset",
    "check_strict_dialect",
    "define_tool",
    "definition_name",
    "disclosed",
    "initial_active_plugins",
    "join_toolsets",
    "normalize_call",
    "partition_plugin_catalog",
    "plugin_from_tools",
    "rehydrate_activation",
    "render_outcome",
    "sanitize_tool_schema",
    "tool",
    "tool_result_message",
    "tool_wire_definition",
]
