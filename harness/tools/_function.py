"""A tool made of a function: its name, docstring and signature say all there is to know."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar, Unpack, overload

import attrs

from harness._errors import ToolDefinitionError
from harness._toolset import CallContext
from harness.tools._definition import PolicyOptions, Tool, call_policy
from harness.tools._normalize import Normalizer
from harness.tools._signature import read_signature

__all__ = ["FunctionTool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen(kw_only=True, eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function, which can still be called as itself."""

    function: Callable[P, R] = attrs.field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no checks, no thread."""
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    abandon: bool = False,
    normalize: Normalizer | None = None,
    **policy: Unpack[PolicyOptions],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    abandon: bool = False,
    normalize: Normalizer | None = None,
    **policy: Unpack[PolicyOptions],
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a function, async or not, by its signature and docstring.

    Used bare (``@tool``), with options (``@tool(serial=True)``), or on a bound method
    (``tool(store.search)``). The name is the function's; the description is what its docstring
    says before the first section. Each parameter needs an annotation that JSON can carry, and
    ``Annotated[int, msgspec.Meta(ge=0)]`` bounds it; its description is the annotation's, or
    the docstring's. A parameter annotated `CallContext` gets the call's context, and the model
    does not see it.

    With *normalize*, arguments are brought into one form before they are checked: it gets them
    as the model sent them, and returns what to check instead. It runs on the trio thread; what it
    raises is told to the model as a fault of the arguments.

    With *abandon*, a stop does not wait for the thread of a synchronous function: the call is
    answered at once, and its thread keeps its permit until it ends.

    Raises:
        ToolDefinitionError: the function cannot be a tool; the error names the parameter.
        TypeError, ValueError: a policy is out of bounds; the error names it.
    """
    made = functools.partial(
        _function_tool,
        name=name,
        description=description,
        abandon=abandon,
        normalize=normalize,
        policy=policy,
    )
    return made if function is None else made(function)


def _function_tool(
    function: Callable[P, R],
    *,
    name: str | None,
    description: str | None,
    abandon: bool,
    normalize: Normalizer | None,
    policy: PolicyOptions,
) -> FunctionTool[P, R]:
    name = getattr(function, "__name__", repr(function)) if name is None else name
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolDefinitionError(
            name, f"it is {function!r}, expected a function or a bound method"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(name, "it is a generator, expected a function that returns")
    signature = read_signature(name, function)
    return FunctionTool(
        name=name,
        description=signature.description if description is None else description,
        schema=signature,
        policy=call_policy(name, policy),
        abandon=abandon,
        normalize=normalize,
        called=functools.partial(_call_by_name, function, signature.context),
        threaded=not inspect.iscoroutinefunction(function),
        function=function,
    )


def _call_by_name(
    function: Callable[..., object],
    context_name: str | None,
    arguments: dict[str, object],
    context: CallContext[object],
) -> object:
    if context_name is not None:
        arguments = {**arguments, context_name: context}
    return function(**arguments)
