"""Whose run it is, and whose call: the names under which a store keeps both.

A *lease* says for how long a worker may believe that it is alone; a *fence* is a number that grows
each time somebody else takes over, and a store compares it in the transaction of every write. A
lease only says when another may try; the fence decides who may write. So a clock that jumps can
cost a second attempt and never a second commit.
"""

from __future__ import annotations

import attrs

from harness._bounds import check_count, check_seconds

__all__ = ["ReceiptClaim", "ReceiptKey", "RunKey", "RunLease", "check_name"]

_MOST = 2**63 - 1
"""The largest number that every database can keep."""


def check_name(name: str, value: object) -> None:
    """Return if *value* is a text that every database takes as a name.

    Raises:
        ValueError: it is none; the error calls it *name*.
    """
    if not isinstance(value, str) or not value or "\x00" in value or not _is_unicode(value):
        what = "a text that is not empty, without NUL and lone surrogates"
        raise ValueError(f"{name} is {value!r}, expected {what}")


def _check_text(instance: object, field: attrs.Attribute[str], value: object) -> None:
    check_name(f"{type(instance).__name__}.{field.name}", value)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _check_number(instance: object, field: attrs.Attribute[int], value: object) -> None:
    name, least = f"{type(instance).__name__}.{field.name}", int(field.name != "occurrence")
    if check_count(name, value, least=least) > _MOST:
        raise ValueError(f"{name} is {value!r}, expected at most {_MOST}")


def _check_length(instance: object, field: attrs.Attribute[float], value: object) -> None:
    check_seconds(f"{type(instance).__name__}.{field.name}", value, zero=False)


@attrs.frozen(kw_only=True)
class RunKey:
    """A run in a store that many tenants share."""

    tenant: str = attrs.field(validator=_check_text)
    run_id: str = attrs.field(validator=_check_text)


@attrs.frozen(kw_only=True)
class RunLease:
    """One worker's turn at a run. Made by a store."""

    key: RunKey
    owner: str = attrs.field(validator=_check_text)
    """Unique to the worker's process."""
    fence: int = attrs.field(validator=_check_number)
    """Counts how often the run was taken."""
    seconds: float = attrs.field(validator=_check_length)
    """How long it lasts from the start of its last renewal."""


@attrs.frozen(kw_only=True)
class ReceiptKey:
    """Which call it is, by its content: a retried turn may order its calls differently."""

    tenant: str = attrs.field(validator=_check_text)
    run_id: str = attrs.field(validator=_check_text)
    tool: str = attrs.field(validator=_check_text)
    args_hash: str = attrs.field(validator=_check_text)
    """Of the normalized arguments."""
    occurrence: int = attrs.field(default=0, validator=_check_number)
    """How many equal calls the transcript had answered when this one was asked for."""


@attrs.frozen(kw_only=True)
class ReceiptClaim:
    """One attempt at a call, held by one worker. Made by a store."""

    key: ReceiptKey
    attempt: int = attrs.field(validator=_check_number)
    """Counts from 1; it is the fence of the receipt."""
    owner: str = attrs.field(validator=_check_text)
    """Unique to the claim."""
    seconds: float = attrs.field(validator=_check_length)
    """How long it lasts from the start of its last renewal."""
