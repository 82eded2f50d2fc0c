"""A tool: what a model is told of it, how its arguments are checked, and what is then called.

`Tool.execute` is the whole of a call, from raw arguments to an outcome. It gives the same
guarantee to whoever calls it: what the function gets has passed the schema. Arguments that do
not pass come back as a failure that the model can read; an exception of the function passes
out, since only whoever runs the batch knows whether it ends the run.

Synchronous functions run in threads, so that one that blocks holds up no other call. What comes
back is awaited where it can be: a function that merely returns a coroutine is as good as one
that is declared ``async``, and what it returned is awaited in the task, not in the thread.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Final, TypedDict, TypeVar, Unpack, cast, get_origin, overload

import attrs

from harness._arguments import Unparseable, UnsupportedType, parse_arguments
from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness._toolset import CallContext, CallPolicy, Effect, Outcome
from harness.tools._normalize import Normalizer
from harness.tools._object_schema import ObjectSchema
from harness.tools._results import outcome_of, unsupported_type
from harness.tools._sanitizer import sanitize_tool_schema
from harness.tools._schema import ArgsInvalid, Schema, check_object_schema
from harness.tools._thread import run_abandonable, run_in_thread
from harness.tools._type_schema import TypeSchema

__all__ = ["PolicyOptions", "Tool", "call_policy", "check_name", "define_tool"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes as the name of a tool."""

ArgsT = TypeVar("ArgsT")
HostT = TypeVar("HostT")


class PolicyOptions(TypedDict, total=False):
    """How calls of a tool are run: the fields of `CallPolicy`, with its defaults."""

    pool: str | None
    """Whose permits they take; without it a pool of the tool's own name, None for no permit."""
    serial: bool
    grace: float
    time_limit: float | None
    effect: Effect
    shielded: bool


@attrs.frozen(kw_only=True, eq=False)
class Tool:
    """Something that a model can call. Made by `define_tool`, and by `tool` of a function."""

    name: str
    description: str
    schema: Schema[object] = attrs.field(repr=False)
    policy: CallPolicy
    abandon: bool = False
    """Its thread is left behind by a stop, instead of awaited."""
    resumes: bool = False
    """A call that asked is called again with its reply, in `CallContext.reply`; otherwise the
    reply is the call's result."""
    normalize: Normalizer | None = attrs.field(default=None, repr=False)
    """Brings arguments into one form before they are checked. Whoever dispatches calls applies
    it, as `ToolList` does; `execute` does not."""
    _called: Callable[..., object] = attrs.field(alias="called", repr=False)
    """From parsed arguments and context to a result, or something to await for it."""
    _threaded: bool = attrs.field(alias="threaded", repr=False)
    definition: dict[str, JSON] = attrs.field(init=False, repr=False)
    """What the model is told, in the chat-completions shape: the schema as every provider accepts
    it, while arguments are checked by the one that was given. Made once; do not change it."""

    @definition.default
    def _define(self) -> dict[str, JSON]:
        told = self.schema.json_schema()
        check_object_schema(self.name, told)
        parameters = sanitize_tool_schema(told)
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": parameters,
            },
        }

    def __attrs_post_init__(self) -> None:
        check_name(self.name, self.name)
        normalize: object = self.normalize
        if normalize is not None and (
            not callable(normalize) or inspect.iscoroutinefunction(normalize)
        ):
            raise ToolDefinitionError(
                self.name, f"its normalizer is {normalize!r}, expected a synchronous function"
            )
        if self.abandon and not self._threaded:
            raise ToolDefinitionError(
                self.name, "abandon is True for an async function, expected a synchronous one"
            )

    async def execute(self, raw: object, context: CallContext[HostT]) -> Outcome:
        """Run one call with the arguments *raw*: their text, or a dictionary.

        Arguments that are refused end in a failure of kind ``validation``, without a checkpoint.
        Otherwise this is a checkpoint if the function is one, and in a thread. A cancellation is
        delivered to an async function as everywhere; a thread is awaited, or left behind.

        Raises:
            Exception: whatever the function raises, as the same object.
        """
        parsed = parse_arguments(raw, call_type=context.call.type)
        if isinstance(parsed, UnsupportedType):
            return unsupported_type(parsed.type)
        if isinstance(parsed, Unparseable):
            return Outcome.failed(parsed.detail, "validation")
        try:
            arguments = self.schema.parse(parsed.arguments)
        except ArgsInvalid as refusal:
            return Outcome.failed(str(refusal), "validation")
        return outcome_of(await self._call(arguments, context))

    async def _call(self, arguments: object, context: CallContext[HostT]) -> object:
        # Nothing checks the host's type here: the host gives both the tools and its own object.
        work = functools.partial(self._called, arguments, context)
        if not self._threaded:
            value = work()
        elif self.abandon:
            value = await run_abandonable(work, name=self.name, keep_permit=context.keep_permit)
        else:
            value = await run_in_thread(work, name=self.name)
        while inspect.isawaitable(value):
            value = await value
        return value


@overload
def define_tool(
    name: str,
    description: str,
    *,
    schema: dict[str, JSON],
    execute: Callable[[dict[str, JSON], CallContext[HostT]], object],
    abandon: bool = False,
    resumes: bool = False,
    normalize: Normalizer | None = None,
    **policy: Unpack[PolicyOptions],
) -> Tool: ...
@overload
def define_tool(
    name: str,
    description: str,
    *,
    schema: type[ArgsT] | Schema[ArgsT],
    execute: Callable[[ArgsT, CallContext[HostT]], object],
    abandon: bool = False,
    resumes: bool = False,
    normalize: Normalizer | None = None,
    **policy: Unpack[PolicyOptions],
) -> Tool: ...
def define_tool(
    name: str,
    description: str,
    *,
    schema: dict[str, JSON] | type[ArgsT] | Schema[ArgsT],
    execute: Callable[..., object],
    abandon: bool = False,
    resumes: bool = False,
    normalize: Normalizer | None = None,
    **policy: Unpack[PolicyOptions],
) -> Tool:
    """Return a tool whose parts are given one by one.

    Args:
        name: What the model calls it.
        description: What the model is told of it.
        schema: A class (attrs, a msgspec Struct, a TypedDict, a dataclass), whose instance
            *execute* gets; a `Schema`; or a JSON Schema of an object, with which *execute* gets
            the dictionary, its names checked and its values not.
        execute: Gets the arguments and the call's context. Async, or run in a thread.
        abandon: As for `tool`.
        resumes: Call *execute* again once a question that it asked has its reply.
        normalize: As for `tool`.
        policy: How its calls are run.

    Raises:
        ToolDefinitionError: *schema* cannot be one.
        TypeError, ValueError: a policy is out of bounds; the error names it.
    """
    return Tool(
        name=name,
        description=description,
        schema=_as_schema(name, schema),
        policy=call_policy(name, policy),
        abandon=abandon,
        resumes=resumes,
        normalize=normalize,
        called=execute,
        threaded=not inspect.iscoroutinefunction(execute),
    )


def check_name(tool: str, name: object) -> None:
    """Return if every provider takes *name* as the name of the tool *tool*.

    Raises:
        ToolDefinitionError: some do not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            tool, f"its name is {name!r}, expected letters, digits, '_' and '-', at most 64"
        )


def call_policy(name: str, options: PolicyOptions) -> CallPolicy:
    """Return the policy of the tool *name*: its own pool, unless *options* say otherwise."""
    given: PolicyOptions = {"pool": name, **options}
    return CallPolicy(**given)


def _as_schema(name: str, source: object) -> Schema[object]:
    if isinstance(source, dict):
        return ObjectSchema(source, tool=name)
    if isinstance(source, type) or get_origin(source) is not None:
        return TypeSchema(source, tool=name)  # type: ignore[arg-type]  # a class, by the line above
    if callable(getattr(source, "json_schema", None)) and callable(getattr(source, "parse", None)):
        return cast("Schema[object]", source)
    raise ToolDefinitionError(
        name, f"its schema is {source!r}, expected a class, a JSON Schema or a Schema"
    )
