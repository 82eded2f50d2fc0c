"""A state on its way to another process."""

from harness import RunState
from harness.checkpoints import checkpoint_of, dump_checkpoint, load_checkpoint, state_of

__all__ = ["carried", "dumped", "loaded"]


def dumped(state: RunState) -> bytes:
    """Return *state* as it is stored."""
    return dump_checkpoint(checkpoint_of(state))


def loaded(text: bytes) -> RunState:
    """Return the state that was stored."""
    return state_of(load_checkpoint(text))


def carried(state: RunState) -> RunState:
    """Return *state* as another process gets it."""
    return loaded(dumped(state))
