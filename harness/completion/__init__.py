"""Replies: put together from chunks, judged, and told while they arrive."""

from harness.completion._accumulator import ToolCallAccumulator
from harness.completion._assembly import Assembler, Completion
from harness.completion._attempt import OpenTurnStream, open_turn_stream
from harness.completion._defects import (
    Defect,
    detect_completion_defect,
    detect_message_defect,
    expects_json_output,
    is_empty_reply,
    json_parses,
    structured_output_parses,
)
from harness.completion._merge import merge_text
from harness.completion._pace import ChunkKind, chunk_kind
from harness.completion._text import TextMachine
from harness.completion._view import TurnText, TurnView

__all__ = [
    "Assembler",
    "ChunkKind",
    "Completion",
    "Defect",
    "OpenTurnStream",
    "TextMachine",
    "ToolCallAccumulator",
    "TurnText",
    "TurnView",
    "chunk_kind",
    "detect_completion_defect",
    "detect_message_defect",
    "expects_json_output",
    "is_empty_reply",
    "json_parses",
    "merge_text",
    "open_turn_stream",
    "structured_output_parses",
]
