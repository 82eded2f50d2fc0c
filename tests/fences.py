"""What the sources of the package may not do, read from their syntax trees.

Importing a package runs its ``__init__``, so what is in `sys.modules` afterwards proves nothing
about one file; the syntax tree does. Each check takes one `Source` and yields a `Fault` for each
place that breaks its rule; `test_layers` runs them over the package, and over planted sources that
each must object to.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "harness"

EDGES: Final = ("testing", "providers", "mcp", "stores", "telemetry", "_cli", "__main__")
"""Imported by no layer: here the world begins, and only here."""

SCOPE_FILES: Final = frozenset(
    {
        "_shield",
        "completion._attempt",
        "kernel._batch",
        "kernel._deadline",
        "kernel._run",
        "receipts._lease",
        "routing._executor",
    }
)
"""The files below the edges that may open a nursery or a cancel scope."""

TRIO_FILES: Final = SCOPE_FILES | {
    "checkpoints._driver",
    "delegation._child",
    "completion._channel",
    "completion._merge",
    "kernel._emitter",
    "kernel._asking",
    "kernel._between",
    "kernel._heartbeat",
    "kernel._leg",
    "kernel._limiters",
    "kernel._writer",
    "receipts._toolset",
    "tools._thread",
}
"""The files below the edges that may import trio; no other knows what runs it."""

SCOPES: Final = frozenset(
    {"CancelScope", "fail_after", "fail_at", "move_on_after", "move_on_at", "open_nursery"}
)

RUNTIME: Final = frozenset({"attrs", "cattrs", "msgspec", "trio"})
"""The third-party packages that the core may import."""

EDGE_PACKAGES: Final = {
    "_cli": frozenset({"httpx2", "xllamacpp"}),
    "mcp": frozenset({"anyio", "httpx2", "mcp", "mcp_types", "pydantic"}),
    "providers": frozenset({"httpx2"}),
    "stores": frozenset({"psycopg"}),
    "testing": frozenset({"hypothesis", "pytest"}),
}
"""What an edge may import besides."""

WORLD: Final = frozenset(
    "asyncio fileinput ftplib getpass glob http io locale logging mmap multiprocessing os pathlib"
    " platform random secrets select selectors shelve shutil signal site smtplib socket"
    " socketserver sqlite3 ssl subprocess sys tempfile time tracemalloc urllib webbrowser".split()
)
"""Standard modules that reach the environment, files, the network, processes or a clock."""

WORLD_ALLOWED: Final = {
    "tools._references": frozenset({"urllib"}),
    "skills._confined": frozenset({"os"}),
    "skills._folder": frozenset({"os"}),
    "skills._yaml": frozenset({"yaml"}),
}
"""What a file below the edges may use all the same: it reads a directory that it is given, or it
only takes an address apart."""

WORLD_CALLS: Final = frozenset({"breakpoint", "eval", "exec", "input", "open", "print"})
TRIO_WORLD: Final = frozenset(
    "Path open_file open_process open_signal_receiver open_ssl_over_tcp_stream open_tcp_stream"
    " open_unix_socket run run_process serve_tcp socket wrap_file".split()
)
DRAWS: Final = frozenset({"uuid.uuid1", "uuid.uuid4"})
CLOCK_CALLS: Final = frozenset({"now", "today", "utcnow"})

BANNED: Final = frozenset({"handler", "helper", "info", "manager", "misc", "util", "utils"})

MUTABLE_NODES: Final = (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Set, ast.SetComp)
MUTABLE_CALLS: Final = frozenset(
    "ChainMap Counter ContextVar OrderedDict RunVar WeakKeyDictionary WeakSet WeakValueDictionary"
    " bytearray count cycle defaultdict deque dict iter list set".split()
)
MUTATORS: Final = frozenset(
    "add append clear discard extend insert pop popitem remove setdefault update".split()
)

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file of the package; `name` is dotted and starts below ``harness``."""

    name: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package directly below ``harness`` that it belongs to (or its own name)."""
        return self.name.partition(".")[0]

    @property
    def is_edge(self) -> bool:
        """Whether no layer imports it."""
        return self.package in EDGES


@dataclass(frozen=True)
class Fault:
    """A place that breaks a rule."""

    name: str
    line: int
    what: str

    def __str__(self) -> str:
        """Return it on one line."""
        return f"harness.{self.name}:{self.line} {self.what}"


def package_sources() -> list[Source]:
    """Read every file of the package."""
    found: list[Source] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found.append(Source(".".join(parts), ast.parse(path.read_bytes(), str(path))))
    return found


# -- reading a tree ----------------------------------------------------------------------------


def imports(source: Source, *, runtime_only: bool = False) -> Iterator[tuple[int, str, str]]:
    """Yield ``(line, module, name)`` for each import, wherever it stands; `name` may be empty."""
    skipped = set(_type_only(source.tree)) if runtime_only else set()
    for node in ast.walk(source.tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, _absolute(source, node), alias.name


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = ["harness", *source.name.split(".")][: -node.level]
    return ".".join([*parts, node.module] if node.module else parts)


def _type_only(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                yield from ast.walk(statement)


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, or of what a call calls."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def functions(source: Source) -> Iterator[Function]:
    """Yield every function of a file, methods and inner ones too."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            yield node


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without those of inner functions and classes."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(node))


def _annotations(tree: ast.Module) -> set[ast.AST]:
    roots: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg):
            roots.append(node.annotation)
        elif isinstance(node, Function):
            roots.append(node.returns)
    return {part for root in roots if root is not None for part in ast.walk(root)}


# -- the checks --------------------------------------------------------------------------------


def trio_outside_its_files(source: Source) -> Iterator[Fault]:
    """Only the listed files import trio at run time."""
    if source.is_edge or source.name in TRIO_FILES:
        return
    for line, module, _ in imports(source, runtime_only=True):
        if module.partition(".")[0] == "trio":
            yield Fault(source.name, line, "imports trio, expected only the listed files to")


def scopes_outside_their_files(source: Source) -> Iterator[Fault]:
    """Only the listed files make a nursery or a cancel scope."""
    if source.is_edge or source.name in SCOPE_FILES:
        return
    annotations = _annotations(source.tree)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Attribute | ast.Name) or node in annotations:
            continue
        if last_name(node) in SCOPES:
            yield Fault(source.name, node.lineno, f"uses {last_name(node)!r}")


def timeout_parameters(source: Source) -> Iterator[Fault]:
    """No async function takes a timeout: callers have trio's scopes."""
    for function in functions(source):
        if isinstance(function, ast.AsyncFunctionDef):
            arguments = function.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            if "timeout" in {argument.arg for argument in every}:
                yield Fault(source.name, function.lineno, f"{function.name} takes a timeout")


def generators_over_scopes(source: Source) -> Iterator[Fault]:
    """No generator holds a scope open across a yield, and no public one is asynchronous."""
    for function in functions(source):
        if _is_context_manager(function):
            continue
        yields = [n for n in own_nodes(function) if isinstance(n, ast.Yield | ast.YieldFrom)]
        public = not function.name.startswith("_") or function.name.startswith("__")
        if yields and public and isinstance(function, ast.AsyncFunctionDef):
            yield Fault(source.name, function.lineno, f"{function.name} is an async generator")
        for node in own_nodes(function):
            if not isinstance(node, ast.With | ast.AsyncWith) or not _holds_a_scope(node):
                continue
            if set(ast.walk(node)) & set(yields):
                yield Fault(source.name, node.lineno, f"{function.name} yields in a scope")


def _is_context_manager(function: Function) -> bool:
    managers = {"asynccontextmanager", "contextmanager"}
    return any(last_name(decorator) in managers for decorator in function.decorator_list)


def _holds_a_scope(node: ast.With | ast.AsyncWith) -> bool:
    names = [last_name(item.context_expr) for item in node.items]
    return any(name in SCOPES or "scope" in name or "nursery" in name for name in names)


def mutable_module_state(source: Source) -> Iterator[Fault]:
    """No module or class holds a container that is not a declared constant, or changes one."""
    if source.is_edge:
        return
    containers: set[str] = set()
    for statement in _long_lived(source.tree):
        for name in _containers(statement):
            containers.add(name)
            if not _declared_constant(statement, name):
                yield Fault(source.name, statement.lineno, f"{name} can be changed")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global):
            yield Fault(source.name, node.lineno, f"rebinds {', '.join(node.names)}")
        if _changed_name(node) in containers:
            yield Fault(source.name, getattr(node, "lineno", 0), f"changes {_changed_name(node)}")
        if isinstance(node, Function) and {"cache", "lru_cache"} & {
            last_name(decorator) for decorator in node.decorator_list
        }:
            yield Fault(source.name, node.lineno, f"{node.name} keeps a cache")


def _long_lived(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of the module's body and of its classes' bodies."""
    yield from tree.body
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from node.body


def _containers(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    else:
        return
    value = statement.value
    if isinstance(value, MUTABLE_NODES) or (
        isinstance(value, ast.Call) and last_name(value) in MUTABLE_CALLS
    ):
        for target in targets:
            name = last_name(target)
            if not (name.startswith("__") and name.endswith("__")):
                yield name


def _declared_constant(statement: ast.stmt, name: str) -> bool:
    if not isinstance(statement, ast.AnnAssign):
        return False
    declared = {last_name(part) for part in ast.walk(statement.annotation)}
    return "Final" in declared and name == name.upper()


def _changed_name(node: ast.AST) -> str:
    """Return the bare name whose value *node* changes in place, or an empty text."""
    target: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        target = node.func.value if node.func.attr in MUTATORS else None
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        target = node.value
    elif isinstance(node, ast.AugAssign):
        target = node.target
    return target.id if isinstance(target, ast.Name) else ""


def foreign_imports(source: Source) -> Iterator[Fault]:
    """Below the edges only the run-time dependencies are imported; an edge has its extra too."""
    allowed = RUNTIME | EDGE_PACKAGES.get(source.package, frozenset())
    allowed |= WORLD_ALLOWED.get(source.name, frozenset())
    for line, module, _ in imports(source):
        top = module.partition(".")[0]
        if top != "harness" and top not in sys.stdlib_module_names and top not in allowed:
            yield Fault(source.name, line, f"imports {top!r}")


def reaches_for_the_world(source: Source) -> Iterator[Fault]:
    """Nothing below the edges touches the environment, files, network, processes or a clock."""
    if source.is_edge:
        return
    known = WORLD - WORLD_ALLOWED.get(source.name, frozenset())
    for line, module, name in imports(source, runtime_only=True):
        if module.partition(".")[0] in known or f"{module}.{name}" in DRAWS:
            yield Fault(source.name, line, f"imports {module!r}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in WORLD_CALLS:
                yield Fault(source.name, node.lineno, f"calls {node.func.id!r}")
        elif isinstance(node, ast.Attribute):
            of = last_name(node.value)
            if of == "trio" and node.attr in TRIO_WORLD:
                yield Fault(source.name, node.lineno, f"uses trio.{node.attr}")
            if of in ("date", "datetime") and node.attr in CLOCK_CALLS:
                yield Fault(source.name, node.lineno, f"uses {of}.{node.attr}")
            # The one default that draws is a source of ids, which every caller can replace.
            if f"{of}.{node.attr}" in DRAWS and source.name != "_ids":
                yield Fault(source.name, node.lineno, f"uses {of}.{node.attr}")


def private_imports_of_testing(source: Source) -> Iterator[Fault]:
    """The fixtures import public packages and the vocabulary, no other package's own modules."""
    if source.package != "testing":
        return
    for line, module, name in imports(source):
        root, package, *inner = [*module.split("."), name]
        if root != "harness" or package == "testing" or package.startswith("_"):
            continue
        if any(part.startswith("_") for part in inner):
            yield Fault(source.name, line, f"imports {module}.{name}")


def root_imports_below_the_edges(source: Source) -> Iterator[Fault]:
    """The face of the package is for users: a layer that imports it would close a circle."""
    if source.is_edge or source.name == "__init__":
        return
    for line, module, name in imports(source):
        is_module = (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()
        if module == "harness" and not is_module:
            yield Fault(source.name, line, f"imports {name!r} from the root")


def banned_names(source: Source) -> Iterator[Fault]:
    """No module, class or function is named with a word that says nothing."""
    for part in source.name.split("."):
        if words(part) & (BANNED | {"data"}):
            yield Fault(source.name, 1, f"module {part!r}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and words(node.name) & (BANNED | {"data"}):
            yield Fault(source.name, node.lineno, f"class {node.name!r}")
        if isinstance(node, Function) and words(node.name) & BANNED:
            yield Fault(source.name, node.lineno, f"function {node.name!r}")


def words(name: str) -> set[str]:
    """Return the words of a name in snake case or camel case, in lower case."""
    spaced = "".join(f"_{letter}" if letter.isupper() else letter for letter in name)
    return set(spaced.lower().split("_"))
