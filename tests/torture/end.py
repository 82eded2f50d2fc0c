"""What a store holds when all is over, in the judge's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness._json import decode
from harness._messages import Message
from harness.checkpoints import Checkpoint, StoredRun
from harness.receipts import receipt_key_string
from harness.transcript import calls_in, check_settled
from tests.torture.job import TENANT
from tests.torture.judge import Answer, FinalReceipt, FinalRun
from tests.torture.line import BothStores
from tests.torture.plan import Group, args_hash, planned_calls

__all__ = ["read_receipts", "read_runs"]


async def read_runs(store: BothStores) -> list[FinalRun]:
    """Return every run, with what was in any of its revisions."""
    return [await _read_run(store, run) for run in await store.list_runs(TENANT)]


async def read_receipts(store: BothStores) -> list[FinalReceipt]:
    """Return every receipt. A hash that no call of the plan has stands for itself."""
    receipts: list[FinalReceipt] = []
    for each in await store.list_receipts(TENANT):
        key = each.key
        known = {args_hash(item): item for _, _, item in planned_calls(key.run_id)}
        receipts.append(
            FinalReceipt(
                name=receipt_key_string(key),
                group=(key.run_id, key.tool, known.get(key.args_hash, key.args_hash)),
                status=each.status,
                attempt=each.attempt,
                in_doubt=each.in_doubt,
            )
        )
    return receipts


async def _read_run(store: BothStores, run: StoredRun) -> FinalRun:
    asked: dict[str, Group] = {}
    answers: dict[str, Answer] = {}
    faults: list[str] = []
    last = checkpoint = await store.load_run(run.key)
    for revision in range(run.revision + 1):
        checkpoint = await store.load_run(run.key, revision=revision)
        faults += _faults(checkpoint, revision)
        for call in calls_in(checkpoint.messages):
            asked[call.id] = (run.key.run_id, call.name, _item(call.arguments))
        for message in checkpoint.messages:
            if message["role"] == "tool":
                call_id = message["tool_call_id"]
                answers[call_id] = _answer(asked[call_id], message)
    if checkpoint != last:
        faults.append("its last revision is another one than the one that it goes on from")
    return FinalRun(
        run_id=run.key.run_id,
        revision=run.revision,
        status=run.status,
        waits_for=_waits_for(last),
        asked=Counter(asked.values()),
        answers=tuple(answers.values()),
        faults=tuple(faults),
    )


def _faults(checkpoint: Checkpoint, revision: int) -> Sequence[str]:
    refusals = check_settled(checkpoint.messages, checkpoint.head.open_call_ids)
    return [f"revision {revision}: {each.text}" for each in refusals]


def _waits_for(checkpoint: Checkpoint) -> tuple[str, ...]:
    pause = checkpoint.head.pause
    if pause is None:
        return ()
    return tuple(
        each.question or f"the time {each.at}"
        for call_id, each in pause.suspends.items()
        if call_id not in pause.replies
    )


def _item(arguments: str) -> str:
    value = decode(arguments)
    assert isinstance(value, dict)
    return str(value["item"])


def _answer(group: Group, message: Message) -> Answer:
    content = message["content"]
    assert isinstance(content, str)
    envelope = decode(content)
    assert isinstance(envelope, dict)
    data = envelope.get("data")
    tokens = data.get("tokens") if isinstance(data, dict) else None
    return Answer(
        group=group,
        succeeded=envelope["success"] is True,
        tokens=tuple(map(str, tokens)) if isinstance(tokens, list) else (),
    )
