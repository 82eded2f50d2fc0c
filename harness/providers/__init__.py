"""Models of remote providers (extra ``http``)."""

from __future__ import annotations

from harness.providers._chat import ChatModel

__all__ = ["ChatModel"]
