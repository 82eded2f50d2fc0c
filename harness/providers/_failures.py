"""What a provider's answer says went wrong, as one error that routing can decide on.

Routing must never read prose, so everything it needs is a field of `ProviderError`: the kind, the
category, how far the call had come, the status and the time to wait. Three sources lead here:

* a **status** that is no success: routing's table says its category;
* an **error object** in a body, whatever the status was: a stream that began with 200 can still
  end with one, and a reply can be one. It counts by the status it came with, so inside a 200 it
  is a `server_error`: the provider said yes and did not deliver. Its own code is often a number
  that looks like a status; it is kept as `provider_code` and never trusted as one, since
  gateways put another server's status there;
* a body that is **not what the wire format says**: the same, for the same reason.

What never came through the wire at all (a refused connection, a reset) is `_http`'s business.

The message quotes the provider's own text, because that is what a person needs. Providers echo
keys in such texts, so a quoted text is redacted, and bounded, before it enters an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import attrs

from harness._errors import ErrorPhase, NotJSONError, ProviderError
from harness._json import JSON, decode, encode_text
from harness.routing import category_of_status, retry_after_from_headers

__all__ = [
    "QUOTE_LENGTH",
    "Redaction",
    "WireError",
    "body_failure",
    "error_in",
    "status_failure",
]

QUOTE_LENGTH: Final = 500
"""Characters of a provider's own text that an error may hold."""

_CODE_LENGTH: Final = 100
_SECRET_LENGTH: Final = 8
"""A shorter value is a placeholder (``none``, ``EMPTY``); hiding it would garble every text."""


class WireError(Exception):
    """Why a body is no reply, in our words, or (*theirs*) what it says instead of one.

    Never leaves this package: where it is caught, the status, the phase and the secrets are
    known, and `body_failure` makes the `ProviderError` of it.
    """

    def __init__(self, message: str, *, theirs: bool = False, code: str | None = None) -> None:
        self.message = message
        self.theirs = theirs
        self.code = code
        super().__init__(message)


def _secrets_of(values: Iterable[str]) -> tuple[str, ...]:
    """Return the true secrets, the longest first: one may be a part of another."""
    return tuple(sorted((v for v in values if len(v) >= _SECRET_LENGTH), key=len, reverse=True))


@attrs.frozen(repr=False, eq=False)
class Redaction:
    """Takes the secrets of one model out of texts."""

    _secrets: tuple[str, ...] = attrs.field(alias="secrets", converter=_secrets_of)

    def __call__(self, text: str) -> str:
        """Return *text* without any secret in it."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text


def error_in(value: JSON) -> WireError | None:
    """Return the error that a decoded body or event carries, or None.

    Read are ``{"error": {…}}``, also in a list, ``{"error": "…"}`` and ``{"object": "error", …}``.
    An empty ``error`` is none.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if not error:
        error = value if value.get("object") == "error" else None
    if error is None:
        return None
    if not isinstance(error, dict):
        message = error if isinstance(error, str) else value.get("message")
        return WireError(_text(message or error), theirs=True, code=_code(value))
    return WireError(_text(error.get("message") or error), theirs=True, code=_code(error))


def body_failure(
    error: WireError, *, status: int, phase: ErrorPhase, redact: Redaction
) -> ProviderError:
    """Return the failure of a reply whose body held *error*."""
    if error.theirs:
        seen = f"the provider reported {_quoted(error.message, redact)}, expected a completion"
    else:
        seen = f"the provider sent {error.message}"
    return ProviderError(
        seen,
        kind="http",
        category=category_of_status(status),
        phase=phase,
        status_code=status,
        provider_code=_safe_code(error.code, redact),
    )


def status_failure(
    status: int,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    redact: Redaction,
    wall_clock: Callable[[], datetime] | None = None,
) -> ProviderError:
    """Return the failure of a reply with a *status* that is no success.

    *body* may be cut anywhere.
    """
    headers = tuple(headers)
    error = _error_of_body(body)
    place = next((value for name, value in headers if name.lower() == "location"), "")
    seen = f"the provider answered with status {status}"
    if place and 300 <= status <= 399:  # most often the address is not quite the right one
        seen += f", a redirect to {_quoted(place, redact)}"
    if error.message:
        seen += f" and said {_quoted(error.message, redact)}"
    return ProviderError(
        f"{seen}, expected a completion",
        kind="http",
        category=category_of_status(status),
        phase="headers",
        status_code=status,
        retry_after=retry_after_from_headers(headers, wall_clock),
        provider_code=_safe_code(error.code, redact),
    )


def _error_of_body(body: bytes) -> WireError:
    try:
        value = decode(body)
    except NotJSONError:
        return WireError(body.decode(errors="replace").strip(), theirs=True)
    error = error_in(value)
    if error is not None:
        return error
    message = value.get("message") or value.get("detail") if isinstance(value, dict) else None
    return WireError(_text(message or value), theirs=True, code=_code(value))


def _code(error: JSON) -> str | None:
    """Return the provider's name for the error; a number only if it has no name."""
    if not isinstance(error, dict):
        return None
    values = [error.get(key) for key in ("code", "type", "status")]
    names = [value for value in values if isinstance(value, str) and value]
    numbers = [str(value) for value in values if type(value) is int]
    return next(iter(names + numbers), None)


def _safe_code(code: str | None, redact: Redaction) -> str | None:
    return None if code is None else redact(code)[:_CODE_LENGTH]


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else encode_text(value)


def _quoted(text: str, redact: Redaction) -> str:
    """Quote *text*; redacted before it is cut, so that no half of a secret is left."""
    text = redact(text)
    return repr(text if len(text) <= QUOTE_LENGTH else f"{text[:QUOTE_LENGTH]}…")
