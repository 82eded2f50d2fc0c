"""The torture: workers on one store, blows out of nowhere, and a judge at the end.

::

    host     keeps runs coming, answers their questions, and sees when all of them have ended
    striker  kills and stops workers, and starts others in their place
    faults   what is the matter with the store for a while
    judge    is asked when the workers have drained what there is, or at once if there is a breach

What is done is drawn from a seed, and *when* it hits depends on the machine. So a torture does not
repeat; its trails can be judged again.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import msgspec
import trio

from tests.torture.end import read_receipts, read_runs
from tests.torture.host import Host
from tests.torture.job import RUN_SECONDS, Job, StoreKind, Variant, open_store
from tests.torture.judge import Breach, Figures, Rule, count_figures, judge_end, judge_trail
from tests.torture.place import Place
from tests.torture.plan import planned_calls
from tests.torture.trail import DRIVER, Blow, Created, Ended, Struck, Trail, read_trails

__all__ = ["Torture", "Verdict", "torture"]

_ROOT: Final = Path(__file__).parents[2]
_LOOK: Final = 1.0
"""Seconds between two looks of the judge at what there is."""


@attrs.frozen(kw_only=True)
class Torture:
    """How much of what."""

    store: StoreKind
    seconds: float
    """How long blows are dealt. The workers then have as long as *drain* to end what is left."""
    seed: int
    variant: Variant = "as_it_is"
    workers: int = 4
    pause: float = 1.0
    """Seconds between two blows, on average."""
    kills: float = 0.6
    """How many of the blows are kills; the others are stops."""
    faulted: float = 15.0
    """Seconds between two faults of the store."""
    drain: float = 60.0
    until: Rule | None = None
    """End as soon as this is broken."""
    keep: Path | None = None
    """A new folder for a copy of the trails."""


@attrs.frozen(kw_only=True)
class Verdict:
    """What came of it."""

    seed: int
    seconds: float
    """How long blows were dealt."""
    breaches: tuple[Breach, ...]
    figures: Figures


async def torture(plan: Torture, place: Place) -> Verdict:
    """Have workers on a store, deal blows, and judge. All ends with it.

    Raises:
        StoreError: the store cannot be used although nothing is done to it.
    """
    with tempfile.TemporaryDirectory(prefix="trails-") as folder:
        job = Job(
            folder=folder,
            store=plan.store,
            address=place.address,
            seed=plan.seed,
            variant=plan.variant,
        )
        trail = Trail(job.trails, DRIVER)
        async with open_store(plan.store, place.address):
            pass  # it is made before the workers come, who would all make it at once
        started = trio.current_time()
        async with _open_nest(job, place.prefix, trail) as nest:
            host = Host(job, trail, random.Random(f"{plan.seed}/host"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(host.serve)
                striker = Striker(plan, place, nest, trail, job.trails)
                await striker.strike()
                seconds = trio.current_time() - started
                if not striker.found:
                    with trio.move_on_after(plan.drain):
                        await striker.drain(host)
                nursery.cancel_scope.cancel()
        trail.close()
        if plan.keep is not None:
            shutil.copytree(folder, plan.keep)
        return await _judged(plan, job, seconds)


async def _judged(plan: Torture, job: Job, seconds: float) -> Verdict:
    records = read_trails(job.trails)
    async with open_store(plan.store, job.address, verify=True) as store:
        runs, receipts = await read_runs(store), await read_receipts(store)
    created = [each.run_id for each in records if isinstance(each, Created)]
    breaches = judge_trail(records, planned_calls)
    if plan.until not in {each.rule for each in breaches}:
        breaches += judge_end(records, created, runs, receipts, planned_calls)
    return Verdict(
        seed=plan.seed,
        seconds=seconds,
        breaches=tuple(breaches),
        figures=count_figures(records, runs, receipts, breaches, planned_calls),
    )


# -- the workers --------------------------------------------------------------------------------


@attrs.define(eq=False)
class Nest:
    """The workers' parent, from outside. Made by `_open_nest`."""

    _process: trio.Process
    _trail: Trail
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _buffer: bytes = attrs.field(default=b"", init=False)
    _names: int = attrs.field(default=0, init=False)
    alive: list[str] = attrs.field(factory=list, init=False)

    async def spawn(self) -> None:
        """Start one more worker."""
        self._names += 1
        name = f"worker-{self._names}"
        await self.command("spawn", name)
        self.alive.append(name)

    async def command(self, verb: str, name: str) -> None:
        """Have something done, and note who has ended by itself."""
        # A command is sent whole, and its answer taken, whatever else comes to an end.
        with trio.CancelScope(shield=True):
            async with self._lock:
                assert self._process.stdin is not None
                await self._process.stdin.send_all(f"{verb} {name}\n".encode())
                self._note(await self._answer())

    async def end(self) -> None:
        """Have all workers end."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        self._note(await self._answer())

    async def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        while b"\n" not in self._buffer:
            received = await self._process.stdout.receive_some()
            if not received:
                raise RuntimeError("the nest is gone")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, int] = json.loads(line)
        return answer

    def _note(self, ended: dict[str, int]) -> None:
        for name, code in ended.items():
            self._trail.write(Ended(worker=self._trail.worker, victim=name, code=code))
            if name in self.alive:
                self.alive.remove(name)


@asynccontextmanager
async def _open_nest(job: Job, prefix: tuple[str, ...], trail: Trail) -> AsyncIterator[Nest]:
    told = msgspec.json.encode(job).decode()
    command = [*prefix, sys.executable, "-m", "tests.torture.nest", told]
    # Not measured, if tests are: it would cost each worker more than its work does.
    unmeasured = {name: each for name, each in os.environ.items() if "COVERAGE" not in name}
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, env=unmeasured
    )
    try:
        nest = Nest(process, trail)
        yield nest
        await nest.end()
    finally:
        with trio.CancelScope(shield=True):
            # At the end of its input the nest ends its workers, and then itself.
            assert process.stdin is not None
            await process.stdin.aclose()
            await process.wait()
            assert process.stdout is not None
            await process.stdout.aclose()


# -- blows --------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Striker:
    """Deals blows, as many as there is time for."""

    _plan: Torture
    _place: Place
    _nest: Nest
    _trail: Trail
    _folder: Path
    _rng: random.Random = attrs.field(init=False)
    _stopped: set[str] = attrs.field(factory=set, init=False)
    found: bool = attrs.field(default=False, init=False)
    """Whether what was looked for has been broken."""

    def __attrs_post_init__(self) -> None:
        self._rng = random.Random(f"{self._plan.seed}/striker")

    async def strike(self) -> None:
        """Deal blows until the time is over. Afterwards nothing is the matter any more."""
        for _ in range(self._plan.workers):
            await self._nest.spawn()
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(self._plan.seconds):
                async with trio.open_nursery() as dealing:
                    if self._plan.until is not None:
                        dealing.start_soon(self._look, dealing.cancel_scope)
                    if self._place.faults:
                        dealing.start_soon(self._fault)
                    await self._hit(nursery)

    async def drain(self, host: Host) -> None:
        """Leave the workers alone until no run is left that they could go on with."""
        host.create = False
        while not host.drained:
            await self._keep_up()
            await trio.sleep(0.1)

    async def _hit(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.sleep(self._rng.expovariate(1 / self._plan.pause))
            await self._keep_up()
            standing = [each for each in self._nest.alive if each not in self._stopped]
            if not standing:
                continue
            victim = self._rng.choice(standing)
            if self._rng.random() < self._plan.kills:
                await self._kill(victim)
            elif 2 * len(standing) > self._plan.workers:  # who is stopped is to be overtaken
                await self._deal("stop", victim)
                self._stopped.add(victim)
                seconds = RUN_SECONDS * self._rng.uniform(1.1, 2.2)
                nursery.start_soon(self._wake, victim, seconds)

    async def _wake(self, victim: str, seconds: float) -> None:
        """Let a stopped worker go on after its leases are over, or kill it."""
        await trio.sleep(seconds)
        self._stopped.discard(victim)
        if self._rng.random() < 0.2:
            await self._kill(victim)
        else:
            await self._deal("continue", victim)

    async def _kill(self, victim: str) -> None:
        await self._deal("kill", victim)
        if victim in self._nest.alive:
            self._nest.alive.remove(victim)
            await self._nest.spawn()

    async def _deal(self, verb: str, victim: str) -> None:
        """Send a signal, and note it if it met anybody."""
        await self._nest.command(verb, victim)
        if victim in self._nest.alive:
            self._note(verb, victim)

    async def _fault(self) -> None:
        for fault in itertools.cycle(self._place.faults):
            await trio.sleep(self._plan.faulted * self._rng.uniform(0.5, 1.5))
            self._note(fault.blow, "all")
            await fault.strike(self._nest.command, self._rng.uniform(0.5, 2.5))

    async def _keep_up(self) -> None:
        """Replace the workers that ended by themselves."""
        await self._nest.command("poll", "all")
        while len(self._nest.alive) < self._plan.workers:
            await self._nest.spawn()

    async def _look(self, dealing: trio.CancelScope) -> None:
        while not self.found:
            await trio.sleep(_LOOK)
            records = read_trails(self._folder)
            breaches = judge_trail(records, planned_calls)
            self.found = self._plan.until in {each.rule for each in breaches}
        dealing.cancel()

    def _note(self, blow: str, victim: str) -> None:
        verb = msgspec.convert(blow, type=Blow)
        self._trail.write(Struck(worker=self._trail.worker, blow=verb, victim=victim))
