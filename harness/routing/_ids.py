"""Names of providers and models that were looked at once, where they came in.

Both are texts that a host writes into settings, so they are checked when they are made and are
a type of their own from then on: what plans and executes a route takes no raw text, and a typing
mistake is found where it was made and not as a provider that nobody ever tries.
"""

from __future__ import annotations

import re
from typing import Final, Self

__all__ = ["CanonicalModelId", "ProviderId"]

_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODEL_LENGTH: Final = 200


class ProviderId(str):
    """Name of a provider, for example ``openai`` or ``eu-gateway.2``.

    Raises:
        TypeError: it is no text.
        ValueError: it is not 1 to 64 lower-case letters, digits, dots, dashes and underscores,
            the first a letter or a digit.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check *text*."""
        if not isinstance(text, str):
            raise TypeError(f"the provider id is {text!r}, expected a text")
        if _PROVIDER.fullmatch(text) is None:
            raise ValueError(
                f"the provider id is {text!r}, expected 1 to 64 of a-z, 0-9, '.', '_' and '-' "
                "that begin with a letter or a digit"
            )
        return super().__new__(cls, text)


class CanonicalModelId(str):
    """Name of a model that is the same at every provider, for example ``meta/llama-3:free``.

    Raises:
        TypeError: it is no text.
        ValueError: it is not 1 to 200 visible characters, in two or more parts with a slash
            between them, none of the parts empty.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check *text*."""
        if not isinstance(text, str):
            raise TypeError(f"the model id is {text!r}, expected a text")
        if len(text) > _MODEL_LENGTH or " " in text or not text.isprintable():
            raise ValueError(
                f"the model id is {text!r}, expected at most {_MODEL_LENGTH} visible characters"
            )
        if "/" not in text or not all(text.split("/")):
            raise ValueError(
                f"the model id is {text!r}, expected two or more parts with a slash between them"
            )
        return super().__new__(cls, text)
