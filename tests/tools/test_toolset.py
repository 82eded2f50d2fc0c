import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from harness._errors import LeaseLostError, MissingPortError, ToolDefinitionError
from harness._toolset import Admission, Batch, CallPolicy, Outcome, Reply, Toolset
from harness.tools import ToolList, as_toolset, disclosed, render_outcome, tool
from tests.tools.contexts import ask, context_for

called: list[str] = []


@tool(serial=True)
async def greet(name: str = "you") -> str:
    """Say hello."""
    called.append(name)
    return f"hello {name}"


@tool
def leave() -> None:
    """Say goodbye."""


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    called.clear()


async def test_a_list_of_tools_is_a_toolset() -> None:
    toolset: Toolset = as_toolset([greet, leave])
    call = ask("greet", '{"name": "x"}')
    assert await toolset.execute(call, context_for(call, None)) == Outcome.completed("hello x")
    assert [each["function"]["name"] for each in toolset.definitions()] == ["greet", "leave"]  # type: ignore[call-overload, index]


def test_a_toolset_stays_what_it_is() -> None:
    toolset = ToolList([greet])
    assert as_toolset(toolset) is toolset
    assert toolset.tools == (greet,)
    assert repr(toolset) == "<ToolList of ['greet']>"


@pytest.mark.rule("R-TOOL-06")
@pytest.mark.parametrize("name", ["retired_tool", "", "x" * 10_000])
async def test_an_unknown_name_is_a_failure_that_names_the_known_ones(name: str) -> None:
    call = ask(name)
    outcome = await ToolList([greet, leave]).execute(call, context_for(call, None))
    assert (outcome.kind, outcome.failure_kind) == ("failed", "not_found")
    assert outcome.error.startswith(f"no tool is called '{name[:100]}")
    assert outcome.error.endswith("expected one of greet, leave")
    assert len(outcome.error) < 300


@pytest.mark.rule("R-TOOL-06")
async def test_of_many_known_names_the_first_are_listed() -> None:
    async def act() -> None: ...

    call = ask("retired_tool")
    many = ToolList(tool(name=f"act_{index}")(act) for index in range(500))
    outcome = await many.execute(call, context_for(call, None))
    assert outcome.error.endswith("act_19 and 480 more")

    nobody = await ToolList().execute(call, context_for(call, None))
    assert nobody == Outcome.failed("no tool is called 'retired_tool', expected none", "not_found")


@pytest.mark.parametrize("name", ["greet", "retired_tool"])
async def test_a_call_of_another_type_is_refused_before_its_name_is_looked_at(name: str) -> None:
    call = ask(name, call_type="custom")
    assert await ToolList([greet]).execute(call, context_for(call, None)) == Outcome.failed(
        "the call has the type 'custom', expected 'function'", "validation"
    )


@pytest.mark.rule("R-TOOL-20")
@pytest.mark.parametrize("value", [None, {"x": [1]}])
async def test_a_reply_is_the_result_and_the_function_is_not_called_again(value: Any) -> None:
    call = ask("greet")
    context = context_for(call, None, reply=Reply(value=value))
    assert await ToolList([greet]).execute(call, context) == Outcome.completed(value)
    assert called == []


def test_each_call_has_its_tools_policy_and_any_other_the_default() -> None:
    toolset = ToolList([greet])
    assert toolset.policy(ask("greet")) == CallPolicy(pool="greet", serial=True)
    for call in (ask("retired_tool"), ask("greet", call_type="custom")):
        assert toolset.policy(call) == CallPolicy.default(call)


async def test_a_list_admits_everything_names_it_does_not_know_too() -> None:
    call = ask("retired_tool")
    batch = Batch(run_id="r", turn_id="t", turn=1, calls=(call,), messages=())
    assert await ToolList().admit(batch) == Admission()


async def test_a_list_has_nothing_to_activate() -> None:
    with pytest.raises(MissingPortError) as caught:
        await ToolList([greet]).activate(Outcome.completed(activate_plugins=["x"]))
    assert caught.value.port == "activate"


@pytest.mark.rule("R-LOOP-24")
def test_a_list_finds_an_error_of_a_store_fatal_and_no_other() -> None:
    lost = LeaseLostError("r", owner="o")
    for toolset in (ToolList([greet]), disclosed(core=[greet])):
        assert toolset.fatal(lost)
        assert toolset.fatal(ExceptionGroup("", [ValueError(), lost]))
        assert not toolset.fatal(KeyError("x"))
        assert not toolset.fatal(ExceptionGroup("", [ValueError()]))


def test_a_list_renders_the_envelope() -> None:
    toolset = ToolList([greet])
    outcome = Outcome.failed("no", "authz")
    assert toolset.render(ask(), outcome) == render_outcome(ask(), outcome)


DEFINE = """
import msgspec
from harness._json import encode_text
from harness.tools import ToolList, tool

class Inner(msgspec.Struct):
    letters: frozenset[str] = frozenset("defghi")

@tool
def act(first: Inner, second: dict[str, int], third: frozenset[str] = frozenset("abc")) -> None:
    'Act.'

print(encode_text(list(ToolList([act]).definitions())))
"""


def test_definitions_are_made_once_and_are_the_same_bytes_in_every_process() -> None:
    toolset = ToolList([greet, leave])
    assert toolset.definitions() is toolset.definitions()

    told = [
        subprocess.run(
            [sys.executable, "-c", DEFINE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert '"description":"Act."' in told[0]
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ToolList([greet, leave, greet]), "'greet' .*: two tools have this name, .*"),
        (lambda: as_toolset([greet.function]), "'greet' .*: it is <function .*>, expected a Tool"),  # type: ignore[list-item]
        (lambda: as_toolset(["greet"]), "\"'greet'\" .*: it is 'greet', expected a Tool"),  # type: ignore[list-item]
        (lambda: as_toolset(greet), "'greet' .*, expected a list of tools or a toolset"),  # type: ignore[arg-type]
        (lambda: as_toolset(3), "'3' .*: it is 3, expected a list of tools or a toolset"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_list_of_tools_is_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"^{reason}$"):
        make()
