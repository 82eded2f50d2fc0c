"""The errors, sorted by who must act.

::

    HarnessError
    ├── UsageError                  fix your call
    │   ├── NotJSONError              a value or text that is not strict JSON
    │   ├── TranscriptError           messages no strict provider would take
    │   ├── ToolDefinitionError       a function that cannot be a tool
    │   ├── ModelContractError        a model returned something that is no turn
    │   ├── RunUseError               a run asked for what its stage does not have
    │   ├── ReplyError                an answer to a call that waits for none
    │   ├── InvalidCompactionError    a compaction that breaks the transcript
    │   ├── MissingPortError          something asked for a port that is not there
    │   ├── MissingExtraError         an optional dependency is not installed
    │   ├── PlanError                 a route that cannot be planned
    │   ├── CheckpointInputError      input that a checkpoint of this status does not take
    │   ├── ReceiptStateError         settling by hand what is in no doubt
    │   └── MisuseError               reported by an event, never raised: see its codes
    ├── ProviderError               the remote side misbehaved
    │   ├── CompletionDefectError     it answered, and the answer is unusable
    │   ├── StructuredOutputError     it answered, and not in the form that was asked for
    │   ├── StreamStalled             it kept an attempt waiting for too long
    │   └── RouteError                every endpoint of a route failed, or none could be tried
    ├── StorageError                a saved state or a log cannot be used
    │   ├── RecordError               a stored record does not load
    │   │   └── CheckpointVersionError  it is of a version that is not known here
    │   ├── RunNotFoundError          the store has no such run
    │   ├── RunExistsError            the store has one of this id already
    │   ├── RunBusyError              another worker is at it
    │   ├── LeaseLostError            another worker has taken over; nothing was written
    │   ├── StaleRevisionError        a commit that follows another revision than the stored one
    │   ├── StoreError                the database itself cannot be used: see its codes
    │   └── JournalTimeoutError       the journal did not answer while a run was closing
    ├── RunTimeoutError             a `RunDeadline` passed
    ├── AbortedToolCallError        a call refused because its run had been stopped
    ├── AttemptSuperseded           an attempt given up because another answered first
    └── InternalError               our bug; please report it

A failed tool, a spent budget and a stop are not here: they are values. Every error has a stable
`code`, fields of plain values, and survives pickling.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

__all__ = [
    "AbortedToolCallError",
    "AttemptSuperseded",
    "CheckpointInputError",
    "CheckpointVersionError",
    "CompletionDefectError",
    "DefectKind",
    "ErrorCategory",
    "ErrorKind",
    "ErrorPhase",
    "HarnessError",
    "InternalError",
    "InvalidCompactionError",
    "JournalTimeoutError",
    "LeaseLostError",
    "MissingExtraError",
    "MissingPortError",
    "MisuseError",
    "ModelContractError",
    "NotJSONError",
    "PlanError",
    "ProviderError",
    "ReceiptStateError",
    "RecordError",
    "ReplyError",
    "RouteError",
    "RouteFailure",
    "RunBusyError",
    "RunExistsError",
    "RunNotFoundError",
    "RunTimeoutError",
    "RunUseError",
    "StaleRevisionError",
    "StallBudget",
    "StorageError",
    "StoreError",
    "StreamStalled",
    "StructuredOutputError",
    "ToolDefinitionError",
    "TranscriptError",
    "UsageError",
    "add_note",
    "error_text",
    "leaf_errors",
    "loses_track",
    "shown",
]

_TEXT_LIMIT = 2_000

ErrorKind: TypeAlias = Literal["http", "network", "stall", "defect", "abort", "internal"]
ErrorCategory: TypeAlias = Literal[
    "server_error",
    "rate_limited",
    "credential",
    "provider_bad_request",
    "client_error",
    "unreachable",
    "stalled",
    "defect",
    "aborted",
]
ErrorPhase: TypeAlias = Literal["connect", "request", "headers", "stream", "reply"]
DefectKind: TypeAlias = Literal["empty", "malformed_tool_call", "truncated", "unfinished"]
StallBudget: TypeAlias = Literal["first_answer", "gap", "absolute"]
"""Which of the budgets of an attempt ran out."""
RouteFailure: TypeAlias = Literal["failed", "empty_plan", "circuits_open"]
"""Why a route brought nothing: what was tried failed, or there was nothing to try."""


class HarnessError(Exception):
    """Root of what this package raises; `code` is stable, the message is not."""

    code: str = "harness.error"

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call ``cls(*args)``, and most classes here take fields, not a message.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(cls: type[HarnessError], args: tuple[object, ...]) -> HarnessError:
    error = cls.__new__(cls, *args)
    error.args = args  # an OSError, which a TimeoutError is, takes them in its __init__ only
    return error


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield *error*, or the errors in it that are no groups if it is a group; however deep."""
    left = [error]
    while left:
        each = left.pop()
        if isinstance(each, BaseExceptionGroup):
            left.extend(reversed(each.exceptions))
        else:
            yield each


def loses_track(error: BaseException) -> bool:
    """Whether after *error*, or an error in it if it is a group, nobody knows what was stored.

    A store could not be used, or somebody else has taken over. What was not found, is held by
    another or does not load is known, and a caller can act on it.
    """
    return any(isinstance(each, StoreError | LeaseLostError) for each in leaf_errors(error))


def add_note(error: BaseException, note: str) -> None:
    """Add *note* to *error*, if it takes notes: one that is frozen does not."""
    with contextlib.suppress(Exception):
        error.add_note(note)


def shown(value: object) -> str:
    """Return how a foreign *value* is shown in an error: its repr, cut; never raises."""
    try:
        return repr(value)[:200]
    except Exception:  # noqa: BLE001  # a foreign __repr__; the class is known in any case
        return f"a {type(value).__name__}"


def error_text(error: BaseException) -> str:
    """Return what *error* says, or its class's name if it says nothing; never raises.

    Cut after so many characters, and without lone surrogates, so that it can be told anywhere.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a foreign __str__; the class is known in any case
        text = ""
    return (text or type(error).__name__)[:_TEXT_LIMIT].encode(errors="replace").decode()


class UsageError(HarnessError):
    """The call is wrong; fix the caller."""

    code = "usage"


class NotJSONError(UsageError, ValueError):
    """A value or a text is not strict JSON; `path` leads to the offending place."""

    code = "json.invalid"

    def __init__(self, reason: str, *, path: Sequence[str | int]) -> None:
        self.reason = reason
        self.path = tuple(path)
        where = ".".join(map(str, self.path))
        super().__init__(f"not JSON at {where}: {reason}" if where else f"not JSON: {reason}")


class TranscriptError(UsageError, ValueError):
    """Messages that a strict provider would refuse; `refusals` has a line for each reason."""

    code = "transcript.invalid"

    def __init__(self, refusals: Sequence[str]) -> None:
        self.refusals = tuple(refusals)
        super().__init__(f"the transcript is refused: {'; '.join(self.refusals)}")


class ToolDefinitionError(UsageError, TypeError):
    """A function or schema that cannot be a tool; `tool` is its name."""

    code = "tool.definition"

    def __init__(self, tool: str, reason: str) -> None:
        self.tool = tool
        self.reason = reason
        super().__init__(f"{tool!r} cannot be a tool: {reason}")


class ModelContractError(UsageError, TypeError):
    """A model returned something that is neither a turn nor a halt, or a malformed turn."""

    code = "model.contract"


class RunUseError(UsageError, RuntimeError):
    """A run, an attempt or an emitter was asked for something it does not have at this stage."""

    code = "run.use"


class ReplyError(UsageError, LookupError):
    """An answer names a call that waits for none; `open_calls` are those that do."""

    code = "run.reply"

    def __init__(self, call_id: str, *, open_calls: Sequence[str]) -> None:
        self.call_id = call_id
        self.open_calls = tuple(open_calls)
        super().__init__(
            f"call {call_id!r} waits for no answer, expected one of {list(self.open_calls)}"
        )


class InvalidCompactionError(UsageError, ValueError):
    """A compaction returned messages that break the transcript; the old ones were kept."""

    code = "compaction.invalid"

    def __init__(self, refusals: Sequence[str]) -> None:
        self.refusals = tuple(refusals)
        super().__init__(f"the compacted transcript is refused: {'; '.join(self.refusals)}")


class MissingPortError(UsageError, NotImplementedError):
    """Something asked for a port that the host did not supply; `port` names it.

    A port raises it to say that it is not there. The kernel then reports it and goes on.
    """

    code = "port.missing"

    def __init__(self, port: str) -> None:
        self.port = port
        super().__init__(f"{port!r} was asked for, expected a port that answers it")


class MissingExtraError(UsageError, ImportError):
    """An optional dependency is not installed; `extra` is what to install."""

    code = "extra.missing"

    def __init__(self, extra: str, module: str) -> None:
        self.extra = extra
        self.module = module
        super().__init__(
            f"{module!r} is not installed, expected it with: pip install 'trio-harness[{extra}]'"
        )


class PlanError(UsageError, ValueError):
    """A route cannot be planned: a transport or a policy answered what it may not."""

    code = "route.plan"


class CheckpointInputError(UsageError, ValueError):
    """Input that a checkpoint does not take in its status; the message says what it needs."""

    code = "checkpoint.input"


class ReceiptStateError(UsageError, ValueError):
    """A receipt was to be settled by hand, and is in no doubt."""

    code = "receipt.state"


class MisuseError(UsageError):
    """A misuse that does not end the run: it is reported by a `CallRejected` event.

    Codes: ``turn.discarded-with-calls``, ``input.unmatched-result``, ``suspend.on-failure``,
    ``suspend.repeated-id``.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class ProviderError(HarnessError):
    """The remote side misbehaved: what happened, in terms that routing can decide on.

    `phase` says how far the call had come: connecting, sending the request, waiting for the
    headers, in the stream, or reading a finished reply.
    """

    code = "provider.error"

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind,
        category: ErrorCategory,
        phase: ErrorPhase,
        status_code: int | None = None,
        retry_after: float | None = None,
        provider_code: str | None = None,
    ) -> None:
        self.kind = kind
        self.category = category
        self.phase = phase
        self.status_code = status_code
        self.retry_after = retry_after
        """Seconds, as the provider asked; not clamped."""
        self.provider_code = provider_code
        """The provider's own code or type of the error, if its body had one."""
        super().__init__(message)


class CompletionDefectError(ProviderError):
    """The provider answered, and the answer is unusable; no call of it is ever run."""

    code = "completion.defect"

    def __init__(self, defect: DefectKind, detail: str, *, phase: ErrorPhase = "reply") -> None:
        self.defect = defect
        self.detail = detail
        super().__init__(
            f"the completion is {defect}: {detail}", kind="defect", category="defect", phase=phase
        )


class StructuredOutputError(ProviderError):
    """A reply is not what the response format promised; `text` is the reply."""

    code = "completion.output"

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(
            f"the reply is not in the form that was asked for: {reason}",
            kind="defect",
            category="defect",
            phase="reply",
        )


class StreamStalled(ProviderError):  # noqa: N818  # a fact about the stream, like trio's own names
    """A provider kept an attempt waiting for longer than its budgets allow."""

    code = "stream.stalled"

    def __init__(
        self,
        budget: StallBudget,
        *,
        seconds: float,
        elapsed: float,
        reasoning_seen: bool,
        answer_seen: bool,
    ) -> None:
        self.budget = budget
        """The budget that ran out; of two that did, not ``absolute``."""
        self.seconds = seconds
        """Its length."""
        self.elapsed = elapsed
        """Seconds since the attempt was opened."""
        self.reasoning_seen = reasoning_seen
        self.answer_seen = answer_seen
        super().__init__(
            f"the stream stalled: its budget {budget} of {seconds:g} s ran out after "
            f"{elapsed:g} s, expected the provider to go on",
            kind="stall",
            category="stalled",
            phase="stream",
        )


class RouteError(ProviderError):
    """A route brought no completion; what it failed with last is its cause.

    Kind, category, status and the time to wait are those of the last failure. With nothing to
    try they say ``network`` and ``unreachable``.
    """

    code = "route.failed"

    def __init__(
        self,
        reason: RouteFailure,
        message: str,
        *,
        tried: Sequence[str] = (),
        kind: ErrorKind = "network",
        category: ErrorCategory = "unreachable",
        phase: ErrorPhase = "connect",
        status_code: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.reason = reason
        self.tried = tuple(tried)
        """A line for each attempt, in order."""
        super().__init__(
            message,
            kind=kind,
            category=category,
            phase=phase,
            status_code=status_code,
            retry_after=retry_after,
        )


class StorageError(HarnessError):
    """A saved state or a log cannot be used."""

    code = "storage.error"


class RecordError(StorageError, ValueError):
    """A stored record does not load; `path` leads to the field."""

    code = "record.invalid"

    def __init__(self, reason: str, *, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"the record does not load at {path or 'its root'}: {reason}")


class CheckpointVersionError(RecordError):
    """A stored record is of a version that is not known here; `version` is what it says."""

    code = "record.version"

    def __init__(self, version: object, *, newest: int) -> None:
        self.version = version
        self.newest = newest
        super().__init__(f"it is {version!r}, expected 1 to {newest}", path="$.version")


class RunNotFoundError(StorageError, LookupError):
    """A store has no run of this id, or not this revision of it."""

    code = "run.not_found"

    def __init__(self, run_id: str, *, revision: int | None = None) -> None:
        self.run_id = run_id
        self.revision = revision
        of = "" if revision is None else f" at revision {revision}"
        super().__init__(f"the store has no run {run_id!r}{of}")


class RunExistsError(StorageError):
    """A run was to be created under an id that the store has already."""

    code = "run.exists"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"the store has a run {run_id!r} already, expected a new id")


class RunBusyError(StorageError):
    """Another worker holds the run; `seconds` is what is left of its lease."""

    code = "run.busy"

    def __init__(self, run_id: str, *, owner: str, seconds: float) -> None:
        self.run_id = run_id
        self.owner = owner
        self.seconds = seconds
        super().__init__(f"run {run_id!r} is held by {owner!r} for another {seconds:.3g} s")


class LeaseLostError(StorageError):
    """A worker wrote, or went on, after another one had taken over; nothing was written."""

    code = "lease.lost"

    def __init__(self, run_id: str, *, owner: str) -> None:
        self.run_id = run_id
        self.owner = owner
        super().__init__(f"{owner!r} no longer holds run {run_id!r}")


class StaleRevisionError(StorageError):
    """A commit does not follow the revision that is stored."""

    code = "checkpoint.stale"

    def __init__(self, run_id: str, *, revision: int, stored: int) -> None:
        self.run_id = run_id
        self.revision = revision
        self.stored = stored
        super().__init__(
            f"revision {revision} of run {run_id!r} was to be committed, and the store has "
            f"revision {stored}, expected its successor"
        )


class StoreError(StorageError):
    """A database cannot be used; what it had committed stands.

    Codes: ``store.foreign`` (not a store of ours), ``store.newer`` (of a later version),
    ``store.corrupt``, ``store.full``, ``store.read_only``, ``store.unreachable``,
    ``store.busy``, ``store.closed``, ``store.failed`` (it raised what no store should).
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class JournalTimeoutError(StorageError, TimeoutError):
    """The journal had not answered when the time for closing a run was over.

    `unanswered` are the calls whose results are therefore not in the transcript.
    """

    code = "journal.timeout"

    def __init__(self, unanswered: Sequence[str]) -> None:
        self.unanswered = tuple(unanswered)
        super().__init__(
            f"the journal did not answer in time; calls left unanswered: {list(self.unanswered)}"
        )


class RunTimeoutError(HarnessError, TimeoutError):
    """A run deadline passed; `label` says whose."""

    code = "run.timeout"

    def __init__(self, label: str) -> None:
        self.label = label
        super().__init__(f"{label} ran out of time")


class AbortedToolCallError(HarnessError):
    """A call was refused because its run had been stopped; `tool_call_id` names it.

    Shown to `Toolset.fatal`, which may turn the refusal into the end of the run.
    """

    code = "tool.not_run"

    def __init__(self, tool_call_id: str, message: str) -> None:
        self.tool_call_id = tool_call_id
        super().__init__(message)


class AttemptSuperseded(HarnessError):  # noqa: N818  # nobody's fault, like trio's own names
    """An attempt was given up because another open attempt of its turn answered first."""

    code = "attempt.superseded"

    def __init__(self, number: int, *, by: int | None = None) -> None:
        self.number = number
        self.by = by
        """The one that answered, if it is known."""
        other = "another" if by is None else f"attempt {by}"
        super().__init__(f"attempt {number} was given up: {other} answered first")


class InternalError(HarnessError):
    """A promise of ours does not hold: our bug, please report it."""

    code = "internal"
