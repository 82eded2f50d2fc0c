"""What a completion consumed. Apart from `_model`, since the events name it too."""

from __future__ import annotations

import msgspec

from harness._bounds import check_amount, check_count

__all__ = ["Usage"]


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens and cost of one completion, or of several added up.

    ``cached_input`` is the part of ``input`` that the provider read from its cache;
    ``cost_cents`` is in hundredths of the currency that the host counts in.

    Raises:
        TypeError, ValueError: a field is no count, or no finite amount.
    """

    input: int = 0
    cached_input: int = 0
    output: int = 0
    cost_cents: float = 0.0

    def __post_init__(self) -> None:
        check_count("Usage.input", self.input)
        check_count("Usage.cached_input", self.cached_input)
        check_count("Usage.output", self.output)
        check_amount("Usage.cost_cents", self.cost_cents)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            cached_input=self.cached_input + other.cached_input,
            output=self.output + other.output,
            cost_cents=self.cost_cents + other.cost_cents,
        )

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input + self.output
