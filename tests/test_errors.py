import copy
import pickle
import re

import pytest

from harness import _errors
from harness._errors import (
    AbortedToolCallError,
    AttemptSuperseded,
    CheckpointInputError,
    CheckpointVersionError,
    CompletionDefectError,
    HarnessError,
    InternalError,
    InvalidCompactionError,
    JournalTimeoutError,
    LeaseLostError,
    MissingExtraError,
    MissingPortError,
    MisuseError,
    ModelContractError,
    NotJSONError,
    PlanError,
    ProviderError,
    ReceiptStateError,
    RecordError,
    ReplyError,
    RouteError,
    RunBusyError,
    RunExistsError,
    RunNotFoundError,
    RunTimeoutError,
    RunUseError,
    StaleRevisionError,
    StorageError,
    StoreError,
    StreamStalled,
    StructuredOutputError,
    ToolDefinitionError,
    TranscriptError,
    UsageError,
)

ERRORS: list[tuple[HarnessError, str, str]] = [
    (HarnessError("text"), "harness.error", "text"),
    (UsageError("text"), "usage", "text"),
    (NotJSONError("nan", path=["a", 1]), "json.invalid", "not JSON at a.1: nan"),
    (NotJSONError("cut off", path=[]), "json.invalid", "not JSON: cut off"),
    (TranscriptError(["one", "two"]), "transcript.invalid", "the transcript is refused: one; two"),
    (ToolDefinitionError("look", "no"), "tool.definition", "'look' cannot be a tool: no"),
    (ModelContractError("text"), "model.contract", "text"),
    (RunUseError("text"), "run.use", "text"),
    (
        ReplyError("a", open_calls=["b"]),
        "run.reply",
        "call 'a' waits for no answer, expected one of ['b']",
    ),
    (
        InvalidCompactionError(["one", "two"]),
        "compaction.invalid",
        "the compacted transcript is refused: one; two",
    ),
    (
        MissingPortError("compactor"),
        "port.missing",
        "'compactor' was asked for, expected a port that answers it",
    ),
    (
        MissingExtraError("http", "httpx2"),
        "extra.missing",
        "'httpx2' is not installed, expected it with: pip install 'trio-harness[http]'",
    ),
    (PlanError("text"), "route.plan", "text"),
    (CheckpointInputError("text"), "checkpoint.input", "text"),
    (ReceiptStateError("text"), "receipt.state", "text"),
    (
        StructuredOutputError("Paris", "not JSON"),
        "completion.output",
        "the reply is not in the form that was asked for: not JSON",
    ),
    (
        StreamStalled("gap", seconds=30, elapsed=61.5, reasoning_seen=True, answer_seen=True),
        "stream.stalled",
        (
            "the stream stalled: its budget gap of 30 s ran out after 61.5 s, "
            "expected the provider to go on"
        ),
    ),
    (
        RouteError("failed", "text", tried=["a: stalled"], kind="stall", category="stalled"),
        "route.failed",
        "text",
    ),
    (
        AttemptSuperseded(0, by=1),
        "attempt.superseded",
        "attempt 0 was given up: attempt 1 answered first",
    ),
    (AttemptSuperseded(2), "attempt.superseded", "attempt 2 was given up: another answered first"),
    (MisuseError("suspend.on-failure", "text"), "suspend.on-failure", "text"),
    (
        ProviderError(
            "text",
            kind="http",
            category="rate_limited",
            phase="headers",
            status_code=429,
            retry_after=1.5,
            provider_code="slow_down",
        ),
        "provider.error",
        "text",
    ),
    (
        CompletionDefectError("truncated", "cut in a call", phase="stream"),
        "completion.defect",
        "the completion is truncated: cut in a call",
    ),
    (StorageError("text"), "storage.error", "text"),
    (RecordError("no", path="a.b"), "record.invalid", "the record does not load at a.b: no"),
    (RecordError("no"), "record.invalid", "the record does not load at its root: no"),
    (
        CheckpointVersionError(3, newest=2),
        "record.version",
        "the record does not load at $.version: it is 3, expected 1 to 2",
    ),
    (RunNotFoundError("a"), "run.not_found", "the store has no run 'a'"),
    (
        RunNotFoundError("a", revision=2),
        "run.not_found",
        "the store has no run 'a' at revision 2",
    ),
    (
        RunExistsError("a"),
        "run.exists",
        "the store has a run 'a' already, expected a new id",
    ),
    (
        RunBusyError("a", owner="b", seconds=1.23456),
        "run.busy",
        "run 'a' is held by 'b' for another 1.23 s",
    ),
    (LeaseLostError("a", owner="b"), "lease.lost", "'b' no longer holds run 'a'"),
    (
        StaleRevisionError("a", revision=3, stored=5),
        "checkpoint.stale",
        (
            "revision 3 of run 'a' was to be committed, and the store has revision 5, "
            "expected its successor"
        ),
    ),
    (StoreError("store.full", "text"), "store.full", "text"),
    (
        JournalTimeoutError(["a"]),
        "journal.timeout",
        "the journal did not answer in time; calls left unanswered: ['a']",
    ),
    (RunTimeoutError("the run"), "run.timeout", "the run ran out of time"),
    (AbortedToolCallError("a", "text"), "tool.not_run", "text"),
    (InternalError("text"), "internal", "text"),
]

CLASSES = {
    name: value
    for name, value in vars(_errors).items()
    if isinstance(value, type) and issubclass(value, HarnessError)
}


def drawn_tree(docstring: str) -> dict[str, str | None]:
    """Return each class that the tree in *docstring* draws, with the one it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in docstring.splitlines():
        drawn = re.fullmatch(r" {4}((?:│   |    )*)([├└]── )?([A-Z]\w+)(  .*)?", line)
        if drawn:
            depth = len(drawn[1]) // 4 + bool(drawn[2])
            del path[depth:]
            parents[drawn[3]] = path[-1] if path else None
            path.append(drawn[3])
    return parents


def test_the_drawn_tree_is_the_tree_of_the_classes() -> None:
    assert _errors.__doc__ is not None
    parents = {
        name: None if cls is HarnessError else cls.__bases__[0].__name__
        for name, cls in CLASSES.items()
    }
    assert drawn_tree(_errors.__doc__) == parents


def test_there_is_one_example_or_more_of_each_class_and_all_are_exported() -> None:
    assert {type(error) for error, _, _ in ERRORS} == set(CLASSES.values())
    assert set(CLASSES) <= set(_errors.__all__)


SEVERAL = (MisuseError, StoreError)
"""Each has several codes, which its docstring lists."""


def test_each_class_has_a_code_of_its_own() -> None:
    codes = [cls.code for cls in CLASSES.values() if cls not in SEVERAL]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+([._-][a-z]+)*", code) for code in codes)


@pytest.mark.parametrize(
    ("error", "code", "text"), [pytest.param(*each, id=type(each[0]).__name__) for each in ERRORS]
)
def test_an_error_keeps_its_code_text_and_fields_through_pickling_and_copying(
    error: HarnessError, code: str, text: str
) -> None:
    noted = copy.copy(error)
    noted.add_note("noted")
    for twin in (error, copy.copy(error), noted, pickle.loads(pickle.dumps(noted))):
        assert type(twin) is type(error)
        assert twin.code == code
        assert str(twin) == text
        assert twin.args == error.args
        assert vars(twin) in (vars(error), {**vars(error), "__notes__": ["noted"]})


@pytest.mark.parametrize("error", [error for error, _, _ in ERRORS])
def test_a_field_is_a_plain_value(error: HarnessError) -> None:
    for value in vars(error).values():
        members = value if isinstance(value, tuple) else (value,)
        assert all(isinstance(each, str | int | float | None) for each in members)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (NotJSONError("no", path=()), ValueError),
        (TranscriptError([]), ValueError),
        (InvalidCompactionError([]), ValueError),
        (RecordError("no"), ValueError),
        (ToolDefinitionError("look", "no"), TypeError),
        (ModelContractError("no"), TypeError),
        (RunUseError("no"), RuntimeError),
        (ReplyError("a", open_calls=()), LookupError),
        (MissingPortError("p"), NotImplementedError),
        (MissingExtraError("http", "httpx2"), ImportError),
        (JournalTimeoutError([]), TimeoutError),
        (RunTimeoutError("x"), TimeoutError),
    ],
)
def test_an_error_is_also_the_builtin_that_says_what_kind_of_thing_happened(
    error: HarnessError, builtin: type[Exception]
) -> None:
    assert isinstance(error, builtin)
