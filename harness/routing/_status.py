"""What a status means, the same for every provider.

A host that knows better of one gateway says so when an error is classified; this is what holds
where it does not. Two rows are judgements. A provider that does not know a model's name answers
404, which says nothing about other providers, so it is no ``client_error``. And a success that
carried an error is the server's failure: it said yes and did not deliver.
"""

from __future__ import annotations

from typing import Final

import attrs

from harness._errors import ErrorCategory

__all__ = ["STATUS_ROWS", "StatusRow", "category_of_status"]


@attrs.frozen(kw_only=True)
class StatusRow:
    """The category of a span of statuses."""

    first: int
    last: int
    category: ErrorCategory
    why: str


STATUS_ROWS: Final = (
    StatusRow(first=200, last=299, category="server_error", why="a success that carried an error"),
    StatusRow(first=401, last=401, category="credential", why="the key is not known"),
    StatusRow(first=402, last=402, category="credential", why="the account cannot pay"),
    StatusRow(first=403, last=403, category="credential", why="the key may not do this"),
    StatusRow(first=404, last=404, category="provider_bad_request", why="no such model here"),
    StatusRow(first=410, last=410, category="provider_bad_request", why="the model is gone"),
    StatusRow(first=408, last=408, category="server_error", why="the server was too slow"),
    StatusRow(first=425, last=425, category="server_error", why="the server was not ready"),
    StatusRow(first=429, last=429, category="rate_limited", why="too many requests"),
    StatusRow(first=400, last=499, category="client_error", why="the request is wrong anywhere"),
    StatusRow(first=500, last=599, category="server_error", why="the server failed"),
)
"""The first row that holds the status counts; a status in no row is a ``client_error``."""


def category_of_status(status: int) -> ErrorCategory:
    """Return what kind of failure a reply with *status* is, once it is known to be one."""
    rows = (row for row in STATUS_ROWS if row.first <= status <= row.last)
    return next((row.category for row in rows), "client_error")
