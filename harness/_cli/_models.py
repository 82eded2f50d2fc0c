"""The models that ``harness run`` asks: one, or a route over several.

A key belongs to an endpoint. The one from the environment goes to the first endpoint and to others
at the same address; another server gets none unless it is named, since a key that is sent to a
server is known to it.
"""

from __future__ import annotations

import argparse
import os
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import attrs

from harness._bounds import check_seconds
from harness._model import Model, StreamBudgets
from harness.models import ModelTransport, Route, RoutedModel
from harness.routing import Hedge

if TYPE_CHECKING:
    from harness.providers import ChatModel

__all__ = ["Models", "add_model_arguments", "default_url", "models_of"]

_KEY: Final = "OPENAI_API_KEY"
_ROUTE: Final = "harness/run"
"""What the models of the command line are called together: any of them will do."""


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which models are asked."""
    parser.add_argument(
        "--model",
        action="append",
        help="the name that the endpoint knows it by; several are tried in this order",
    )
    parser.add_argument(
        "--base-url",
        action="append",
        help="of a chat-completions endpoint, one for each --model, or the last one for the rest "
        "(default: OPENAI_BASE_URL, or OpenAI's own)",
    )
    parser.add_argument(
        "--key-env",
        action="append",
        help="the environment variable with the key, one for each --model "
        f"(default: {_KEY} for the first and for others at its address)",
    )
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="show replies as they come, or ask for whole ones (default: --stream)",
    )
    parser.add_argument(
        "--hedge",
        type=float,
        metavar="SECONDS",
        help="try the next model beside one that has not begun to answer by then",
    )
    usual = StreamBudgets()
    parser.add_argument(
        "--first-answer",
        type=float,
        metavar="SECONDS",
        help=f"how long an answer may take to begin (default: {usual.first_answer:g})",
    )
    parser.add_argument(
        "--gap",
        type=float,
        metavar="SECONDS",
        help=f"how long it may pause (default: {usual.gap:g})",
    )


@attrs.frozen
class Models:
    """The model to ask, and the endpoints behind it."""

    asked: Model
    endpoints: Sequence[ChatModel]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Model]:
        """Open the endpoints for a block, and give the model to ask."""
        async with AsyncExitStack() as stack:
            for each in self.endpoints:
                await stack.enter_async_context(each)
            yield self.asked


def models_of(options: argparse.Namespace) -> Models:
    """Return the models that *options* name.

    Raises:
        ValueError: there are more addresses or keys than models, or a bound is none.
        UsageError: an address or a key cannot be used.
    """
    names: list[str] = options.model or []
    if not names:
        raise ValueError("there is no --model, expected one or more")
    urls = _each("--base-url", options.base_url or [default_url()], names)
    keys = _keys(options.key_env, names, urls)
    budgets = _budgets(options)
    hedge = options.hedge
    if hedge is not None:
        hedge = check_seconds("--hedge", hedge)
    endpoints = [
        _endpoint(name, url, key, budgets, stream=options.stream is not False)
        for name, url, key in zip(names, urls, keys, strict=True)
    ]
    if len(endpoints) == 1:
        if hedge is not None:
            raise ValueError(f"--hedge is {hedge!r} for one model, expected several")
        return Models(endpoints[0], endpoints)
    ids = _provider_ids(urls)
    route = RoutedModel(
        Route(_ROUTE),
        [ModelTransport(id, {_ROUTE: each}) for id, each in zip(ids, endpoints, strict=True)],
        hedge=None if hedge is None else Hedge(after=hedge),
    )
    return Models(route, endpoints)


def default_url() -> str:
    """Return the address that counts if none is given."""
    return os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")


def _each(option: str, values: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return one value for each name, the last one again for those that have none."""
    if len(values) > len(names):
        raise ValueError(
            f"{option} is given {len(values)} times for {len(names)} models, "
            "expected at most one for each"
        )
    return [*values, *(values[-1] for _ in names[len(values) :])]


def _keys(
    variables: Sequence[str] | None, names: Sequence[str], urls: Sequence[str]
) -> list[str | None]:
    if variables is None:
        key = os.environ.get(_KEY) or None
        return [key if url == urls[0] else None for url in urls]
    keys: list[str | None] = []
    for variable in _each("--key-env", variables, names):
        if variable not in os.environ:
            raise ValueError(f"--key-env is {variable!r}, expected a variable that is set")
        keys.append(os.environ[variable])
    return keys


def _budgets(options: argparse.Namespace) -> StreamBudgets:
    given = {name: getattr(options, name) for name in ("first_answer", "gap")}
    return StreamBudgets(**{name: value for name, value in given.items() if value is not None})


def _endpoint(
    name: str, url: str, key: str | None, budgets: StreamBudgets, *, stream: bool
) -> ChatModel:
    from harness.providers import ChatModel  # noqa: PLC0415  # an extra

    return ChatModel(name, base_url=url, api_key=key, stream=stream, budgets=budgets)


def _provider_ids(urls: Sequence[str]) -> list[str]:
    """Return a name for each address: its host, numbered where it stands twice."""
    ids: list[str] = []
    for url in urls:
        host = (urllib.parse.urlsplit(url).hostname or "").lower()
        name = "".join(each if each.isascii() and each.isalnum() else "-" for each in host)
        name = name.strip("-")[:56] or "provider"
        count = sum(each == name or each.startswith(f"{name}.") for each in ids)
        ids.append(name if not count else f"{name}.{count + 1}")
    return ids
