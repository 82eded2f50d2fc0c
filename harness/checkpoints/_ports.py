"""What a host gives a run that goes on from a checkpoint.

`Restore` opens a block: whatever it connects to for the run lives exactly as long as the run, and
is closed on every exit, in the right order. (A plain function would have to leave connections and
nurseries open behind it.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, TypeAlias

import attrs

from harness._durable import RunLease
from harness._json import JSON
from harness._model import ModelLike
from harness.checkpoints._record import Checkpoint, Commit
from harness.kernel import RunOptions

__all__ = ["CommitPort", "Restore", "RestoreStored", "Restored"]


@attrs.frozen(kw_only=True, eq=False)
class Restored:
    """What a checkpoint's bindings describe, made again."""

    model: ModelLike
    capture_bindings: Callable[[], JSON]
    """Asked for each commit: what the next process needs to know."""
    options: RunOptions = attrs.field(factory=RunOptions)
    """Tools and ports, as `open_run` takes them; limits and boundary are the checkpoint's."""


Restore: TypeAlias = Callable[[Checkpoint], AbstractAsyncContextManager[Restored]]
"""Checks what the bindings describe, or makes it again, before it hands out tools."""
RestoreStored: TypeAlias = Callable[[Checkpoint, RunLease], AbstractAsyncContextManager[Restored]]
"""The same, under a lease, to which receipts can be bound."""
CommitPort: TypeAlias = Callable[[Commit], Awaitable[Literal["continue", "checkpoint"]]]
"""Stores a commit, then says whether the run goes on."""
