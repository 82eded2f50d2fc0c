"""The tools of the torture test, whose effects are lines in a trail.

Each waits a little before its effect and after it, so that a kill finds it in either place, and
now and then for longer than its receipt's lease, so that this has to be renewed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import attrs
import trio

from harness._durable import ReceiptClaim
from harness._ids import random_id
from harness._toolset import CallContext, ForwardingToolset, Outcome, Suspend, ToolCall, Toolset
from harness.receipts import receipt_key_string
from harness.tools import Tool, tool
from tests.torture.plan import EFFECTS, parts_of
from tests.torture.trail import Effect, Left, Trail, read_effects

__all__ = ["Leaving", "Work"]

_LONG: Final = 0.08
"""How many waits are long."""


@attrs.frozen(eq=False)
class Work:
    """What the calls of one run do."""

    _folder: Path
    _trail: Trail
    _rng: random.Random
    _run_id: str
    _seconds: float = 0.12
    """How long a wait is, at most; a long one is up to fifteen times as long."""

    def tools(self) -> list[Tool]:
        """Return the tools; `plan.EFFECTS` says what kind each of them is."""
        functions: tuple[Callable[..., object], ...] = (
            self.pay, self.attempt, self.crash, self.confirm, self.build, self.look, self.ask,
            self.nap,
        )  # fmt: skip
        return [
            attrs.evolve(
                tool(effect=EFFECTS[function.__name__], description="Part of a test.")(function),
                resumes=function == self.confirm,
            )
            for function in functions
        ]

    async def pay(self, item: str, context: CallContext[object]) -> dict[str, list[str]]:
        await self._wait()
        token = self._act("pay", item, context)
        await self._wait()
        return {"tokens": [token]}

    async def attempt(self, item: str, context: CallContext[object]) -> object:
        await self._wait()
        if self._rng.random() < 0.4:
            return Outcome.failed("it was not to be had, and nothing was done")
        token = self._act("attempt", item, context)
        await self._wait()
        return {"tokens": [token]}

    async def crash(self, item: str, context: CallContext[object]) -> None:
        await self._wait()
        if self._rng.random() < 0.5:
            self._act("crash", item, context)
            await self._wait()
        raise RuntimeError("it broke, here or there")

    async def confirm(self, item: str, context: CallContext[object]) -> object:
        await self._wait()
        if context.reply is None:
            return Suspend.answer(f"may {item} be done?")
        token = self._act("confirm", item, context)
        await self._wait()
        return {"tokens": [token]}

    async def build(self, item: str, context: CallContext[object]) -> dict[str, list[str]]:
        for part in range(parts_of(item)):
            await self._wait()
            if part not in self._built(item, context):
                self._act("build", item, context, part=part)
        built = self._built(item, context)
        return {"tokens": [built[part] for part in sorted(built)]}

    async def look(self, item: str) -> str:
        await self._wait()
        return f"what {item} looks like"

    async def ask(self, item: str) -> Outcome:
        await self._wait()
        return Outcome.completed(suspend=Suspend.answer(f"what about {item}?"))

    async def nap(self, item: str) -> Outcome:
        await self._wait()
        at = datetime.now(UTC) + timedelta(seconds=self._rng.random())
        return Outcome.completed({"item": item}, suspend=Suspend.wake(at))

    async def _wait(self) -> None:
        long = self._rng.random() < _LONG
        await trio.sleep(self._rng.random() * self._seconds * (15 if long else 1))

    def _act(self, name: str, item: str, context: CallContext[object], *, part: int = 0) -> str:
        """Do what cannot be undone, and return its token.

        The parts of a run's *build* calls stand in a file of the run's own: that is the trail in
        which the next attempt looks for what has been done, and it is what was done.
        """
        token = random_id("effect")
        trail = Trail(self._folder, f"build-{self._run_id}") if name == "build" else self._trail
        receipt = context.receipt
        trail.write(
            Effect(
                worker=self._trail.worker,
                run_id=self._run_id,
                tool=name,
                item=item,
                part=part,
                token=token,
                receipt=_name(receipt),
                attempt=0 if receipt is None else receipt.attempt,
            )
        )
        if trail is not self._trail:
            trail.close()
        return token

    def _built(self, item: str, context: CallContext[object]) -> dict[int, str]:
        """Return the tokens of the parts that the call has done, in this attempt or before."""
        tokens: dict[int, str] = {}
        for each in read_effects(self._folder / f"build-{self._run_id}.trail"):
            if (each.item, each.receipt) == (item, _name(context.receipt)):
                tokens.setdefault(each.part, each.token)
        return tokens


def _name(receipt: ReceiptClaim | None) -> str:
    return "" if receipt is None else receipt_key_string(receipt.key)


class Leaving(ForwardingToolset):
    """Writes down which calls are left without a result. Inside of the receipts."""

    def __init__(self, toolset: Toolset, trail: Trail) -> None:
        super().__init__(toolset)
        self._trail = trail

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        try:
            return await super().execute(call, context)
        except BaseException:
            if context.receipt is not None:
                self._trail.write(
                    Left(
                        worker=self._trail.worker,
                        receipt=_name(context.receipt),
                        attempt=context.receipt.attempt,
                    )
                )
            raise
