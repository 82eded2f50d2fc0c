"""The fences of the package, checked file by file; each check is first shown to object."""

import ast
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pytest

from harness import Assembly, CallPiece, TextSurface, user_message
from harness._arguments import Parsed, parse_arguments
from harness.completion import (
    Completion,
    TextMachine,
    ToolCallAccumulator,
    detect_completion_defect,
)
from harness.kernel._outcomes import judge_outcome
from harness.kernel._stop import first_reason
from harness.transcript import check_openai
from tests import fences
from tests.fences import Fault, Source

Check: TypeAlias = Callable[[Source], Iterator[Fault]]

SOURCES: Final = fences.package_sources()
NAMES: Final = frozenset(source.name for source in SOURCES)


def planted(text: str, name: str = "kernel._sample") -> Source:
    return Source(name, ast.parse(textwrap.dedent(text)))


def faults_of(check: Check) -> list[str]:
    return [str(fault) for source in SOURCES for fault in check(source)]


def test_the_package_is_really_read() -> None:
    assert {"__init__", "_errors", "_shield"} <= NAMES


# -- trio and its scopes -----------------------------------------------------------------------


@pytest.mark.rule("R-FENCE-15")
def test_trio_is_imported_only_in_the_listed_files() -> None:
    assert faults_of(fences.trio_outside_its_files) == []


def test_every_listed_file_needs_to_be_listed() -> None:
    unlisted = [Source(f"{source.name}._", source.tree) for source in SOURCES]
    using = {f.name[:-2] for source in unlisted for f in fences.trio_outside_its_files(source)}
    opening = {
        f.name[:-2] for source in unlisted for f in fences.scopes_outside_their_files(source)
    }
    assert using == fences.TRIO_FILES
    assert opening == fences.SCOPE_FILES


@pytest.mark.parametrize(
    "text",
    [
        "import trio",
        "import trio.lowlevel",
        "from trio import Event",
        "def late():\n    import trio",
        "import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import trio",
    ],
)
def test_a_stray_trio_import_is_seen(text: str) -> None:
    assert list(fences.trio_outside_its_files(planted(text)))


def test_trio_may_be_imported_for_types_and_where_it_is_listed() -> None:
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import trio"
    assert not list(fences.trio_outside_its_files(planted(for_types)))
    assert not list(fences.trio_outside_its_files(planted("import trio", "kernel._run")))
    assert not list(fences.trio_outside_its_files(planted("import trio", "providers._chat")))


@pytest.mark.rule("R-FENCE-16")
def test_nurseries_and_scopes_are_opened_only_in_the_addressed_files() -> None:
    assert faults_of(fences.scopes_outside_their_files) == []


@pytest.mark.parametrize(
    "text",
    [
        "async def f():\n    async with trio.open_nursery() as nursery: ...",
        "from trio import move_on_after\nwith move_on_after(1): ...",
        "make = trio.CancelScope",
        "@attrs.define\nclass C:\n    scope: object = attrs.field(factory=trio.CancelScope)",
        "def f():\n    with trio.fail_at(1): ...",
    ],
)
def test_a_stray_scope_is_seen(text: str) -> None:
    assert list(fences.scopes_outside_their_files(planted(text, "kernel._turn")))


def test_a_scope_may_be_named_as_a_type() -> None:
    text = "class C:\n    scope: trio.CancelScope\n    def f(self, s: trio.CancelScope | None): ..."
    assert not list(fences.scopes_outside_their_files(planted(text)))


@pytest.mark.rule("R-FENCE-17")
def test_no_async_function_takes_a_timeout() -> None:
    assert faults_of(fences.timeout_parameters) == []


@pytest.mark.parametrize(
    "text",
    [
        "async def f(timeout): ...",
        "class C:\n    async def f(self, *, timeout=None): ...",
        "async def f(timeout, /): ...",
    ],
)
def test_a_timeout_parameter_is_seen(text: str) -> None:
    assert list(fences.timeout_parameters(planted(text)))


def test_a_synchronous_function_may_take_a_timeout() -> None:
    assert not list(fences.timeout_parameters(planted("def f(timeout): ...")))


@pytest.mark.rule("R-TRIO-03")
def test_no_generator_holds_a_scope_and_no_public_one_is_async() -> None:
    assert faults_of(fences.generators_over_scopes) == []


@pytest.mark.parametrize(
    "text",
    [
        "async def events():\n    yield 1",
        "class C:\n    async def __aiter__(self):\n        yield 1",
        "async def _f():\n    async with trio.open_nursery():\n        yield 1",
        "async def _f():\n    with trio.CancelScope():\n        for x in y:\n            yield x",
        "def _f():\n    with self._work_scope:\n        yield from x",
        "async def _f():\n    async with a, trio.open_nursery() as b:\n        yield 1",
    ],
)
def test_a_generator_over_a_scope_is_seen(text: str) -> None:
    assert list(fences.generators_over_scopes(planted(text)))


def test_context_managers_and_private_generators_without_scopes_may_yield() -> None:
    text = """
        @asynccontextmanager
        async def open_it():
            async with trio.open_nursery():
                yield 1

        async def _lines():
            with open_file():
                yield 1

        async def outer():
            with trio.CancelScope():
                def inner():
                    yield 1
    """
    assert not list(fences.generators_over_scopes(planted(text)))


# -- the world ---------------------------------------------------------------------------------


@pytest.mark.rule("R-FENCE-01", "R-FENCE-03")
def test_only_the_runtime_dependencies_are_imported_below_the_edges() -> None:
    assert faults_of(fences.foreign_imports) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import django", "kernel._sample"),
        ("from pydantic import BaseModel", "tools._sample"),
        ("def f():\n    import yaml", "kernel._sample"),
        ("if TYPE_CHECKING:\n    import httpx2", "kernel._sample"),
        ("import pytest", "providers._sample"),
    ],
)
def test_a_foreign_import_is_seen(text: str, name: str) -> None:
    assert list(fences.foreign_imports(planted(text, name)))


def test_an_edge_may_import_what_its_extra_brings() -> None:
    assert not list(fences.foreign_imports(planted("import httpx2", "providers._sample")))


@pytest.mark.rule("R-FENCE-03")
def test_the_declared_dependencies_are_those() -> None:
    declared = {line.partition(">=")[0] for line in project()["project"]["dependencies"]}
    assert declared == fences.RUNTIME


@pytest.mark.rule("R-FENCE-02", "R-FENCE-04", "R-GEN-01")
def test_nothing_below_the_edges_reaches_for_the_world() -> None:
    assert faults_of(fences.reaches_for_the_world) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import os.path",
        "from os import environ",
        "from pathlib import Path",
        "import socket",
        "import subprocess",
        "import logging.config",
        "import random",
        "from time import monotonic",
        "import uuid\nid = uuid.uuid4()",
        "from uuid import uuid4",
        "def f():\n    import time",
        "text = open('x').read()",
        "print('x')",
        "at = datetime.now()",
        "at = datetime.datetime.now(datetime.UTC)",
        "on = date.today()",
        "f = trio.Path('x')",
        "async def f():\n    await trio.open_tcp_stream('x', 1)",
    ],
)
def test_a_reach_for_the_world_is_seen(text: str) -> None:
    assert list(fences.reaches_for_the_world(planted(text)))


def test_the_edges_may_reach_for_the_world() -> None:
    assert not list(fences.reaches_for_the_world(planted("import os", "_cli._main")))
    drawn = "import uuid\nid = uuid.uuid4()"
    assert not list(fences.reaches_for_the_world(planted(drawn, "_ids")))


@pytest.mark.rule("R-FENCE-06")
def test_no_module_below_the_edges_holds_state() -> None:
    assert faults_of(fences.mutable_module_state) == []


@pytest.mark.parametrize(
    "text",
    [
        "seen = []",
        "SEEN = {}",
        "seen: dict[str, int] = {}",
        "seen: Final = set()",
        "numbers = itertools.count()",
        "class C:\n    seen = {}",
        "TABLE: Final = {}\ndef f():\n    TABLE['x'] = 1",
        "TABLE: Final = {}\ndef f():\n    del TABLE['x']",
        "TABLE: Final = []\ndef f():\n    TABLE.append(1)",
        "TABLE: Final = []\nTABLE += [1]",
        "n = 0\ndef f():\n    global n\n    n += 1",
        "@functools.lru_cache(maxsize=8)\ndef f(): ...",
        "@cache\ndef f(): ...",
    ],
)
def test_module_state_is_seen(text: str) -> None:
    assert list(fences.mutable_module_state(planted(text)))


@pytest.mark.parametrize(
    "text",
    [
        "__all__ = ['a']",
        "TABLE: Final = {'a': 1}\ndef f():\n    return TABLE['a']",
        "TABLE: Final[Mapping[str, int]] = {'a': 1}",
        "KINDS = frozenset({'a'})",
        "PAIRS = (('a', 1),)",
        "def f():\n    seen = []\n    seen.append(1)",
        "@attrs.frozen\nclass C:\n    seen: list[int] = attrs.field(factory=list)",
    ],
)
def test_constants_are_no_state(text: str) -> None:
    assert not list(fences.mutable_module_state(planted(text)))


# -- who imports whom --------------------------------------------------------------------------


def project() -> dict[str, Any]:
    return tomllib.loads((fences.ROOT / "pyproject.toml").read_text("utf-8"))


def layers() -> list[set[str]]:
    """The layers, top first, as the import contract declares them."""
    contracts = project()["tool"]["importlinter"]["contracts"]
    (lines,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    return [set(re.findall(r"\w+", line)) for line in lines]


def upward_imports(source: Source, layers: list[set[str]]) -> Iterator[Fault]:
    """The imports of a file that do not point down, inside functions and for types too."""
    level = {name: number for number, layer in enumerate(layers) for name in layer}
    for line, module, name in fences.imports(source):
        path = f"{module}.{name}".split(".")
        target = path[1] if path[0] == "harness" and len(path) > 1 else ""
        if target in level and target != source.package:
            same_vocabulary = level[target] == level[source.package] == len(layers) - 1
            if level[target] <= level[source.package] and not same_vocabulary:
                yield Fault(source.name, line, f"imports {target}")


@pytest.mark.rule("R-FENCE-13")
def test_imports_point_down_and_siblings_do_not_know_each_other() -> None:
    table = layers()
    listed = set().union(*table)
    assert {source.package for source in SOURCES} - {"__init__"} <= listed
    faults = [
        str(fault)
        for source in SOURCES
        if source.name != "__init__"
        for fault in upward_imports(source, table)
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from harness.kernel import Run", "tools._sample"),
        ("from harness import kernel", "tools._sample"),
        ("import harness.testing", "kernel._sample"),
        ("from harness.transcript import check", "tools._sample"),
        ("def f():\n    from harness.kernel import Run", "completion._sample"),
        ("if TYPE_CHECKING:\n    from harness.tools import Tool", "_toolset"),
        ("from ..kernel import Run", "tools._sample"),
    ],
)
def test_an_import_that_does_not_point_down_is_seen(text: str, name: str) -> None:
    assert list(upward_imports(planted(text, name), layers()))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from harness._errors import HarnessError", "_json"),
        ("from harness.tools import Tool", "kernel._sample"),
        ("from harness.tools._sample import x", "tools._other"),
        ("from ._sample import x", "tools._other"),
    ],
)
def test_an_import_that_points_down_is_fine(text: str, name: str) -> None:
    assert not list(upward_imports(planted(text, name), layers()))


@pytest.mark.rule("R-FENCE-13")
def test_no_layer_imports_the_face_of_the_package() -> None:
    assert faults_of(fences.root_imports_below_the_edges) == []


def test_an_import_of_the_face_is_seen() -> None:
    for text in ("from harness import run", "from harness import Limits as L"):
        assert list(fences.root_imports_below_the_edges(planted(text)))
    assert not list(fences.root_imports_below_the_edges(planted("from harness import _errors")))


@pytest.mark.rule("R-KIT-10")
def test_the_fixtures_use_public_interfaces_only() -> None:
    assert faults_of(fences.private_imports_of_testing) == []


@pytest.mark.parametrize(
    "text",
    [
        "from harness.kernel._batch import run_batch",
        "from harness.kernel import _batch",
        "import harness.kernel._batch",
    ],
)
def test_a_private_import_of_the_fixtures_is_seen(text: str) -> None:
    assert list(fences.private_imports_of_testing(planted(text, "testing._cuts")))


def test_the_fixtures_may_import_public_names_the_vocabulary_and_each_other() -> None:
    text = """
        from harness import open_run
        from harness.kernel import Run
        from harness._errors import HarnessError
        from harness.testing._tools import HeldTool
        from ._tools import SlowTool
    """
    assert not list(fences.private_imports_of_testing(planted(text, "testing._cuts")))


# -- names -------------------------------------------------------------------------------------


def test_names_say_something() -> None:
    assert faults_of(fences.banned_names) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "kernel._util"),
        ("class RunManager: ...", "kernel._run"),
        ("class ToolData: ...", "kernel._run"),
        ("def stop_helper(): ...", "kernel._run"),
        ("class C:\n    async def info(self): ...", "kernel._run"),
    ],
)
def test_a_name_that_says_nothing_is_seen(text: str, name: str) -> None:
    assert list(fences.banned_names(planted(text, name)))


def test_words_within_words_are_fine() -> None:
    assert not list(fences.banned_names(planted("def database_information(): ...")))


@pytest.mark.rule("R-TRIO-22")
def test_the_decisions_of_the_core_need_no_trio_run() -> None:
    arguments = parse_arguments('{"a": 1}')
    calls = ToolCallAccumulator()
    calls.observe([CallPiece(index=0, id="1", name="x", arguments="{}")])
    told: list[object] = []
    text = TextMachine("t", told.append, TextSurface())
    text.begin_attempt()
    text.observe("hello")
    assert arguments == Parsed(arguments={"a": 1})
    assert [call["id"] for call in calls.assembled()] == ["1"]
    assert detect_completion_defect(Completion(text="x"), Assembly()) is None
    assert len(told) == 1
    assert check_openai([user_message("Go.")]) == ()
    assert first_reason("finished", "aborted") == "aborted"
    assert judge_outcome("cut", stopped=True)[0].kind == "interrupted"
