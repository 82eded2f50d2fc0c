"""What may go wrong with standard output, and is no fault of a run."""

from __future__ import annotations

import io
import os
from typing import TextIO

__all__ = ["discard_rest", "replace_unknown"]


def replace_unknown(output: TextIO) -> None:
    """Have a mark that the terminal's encoding lacks replaced, instead of failing on it."""
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="replace")


def discard_rest(output: TextIO) -> None:
    """Send what is still to be written nowhere: whoever read *output* has gone.

    Without this the interpreter would write what is left in the buffer at its end, and complain.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)
