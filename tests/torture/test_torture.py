"""The torture in small: what must hold, holds; and of two mistakes, made on purpose, it tells."""

from __future__ import annotations

import functools

import pytest
import trio

from tests.torture.driver import Torture, Verdict, torture
from tests.torture.job import StoreKind
from tests.torture.place import open_place
from tests.torture.report import as_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def run(plan: Torture) -> Verdict:
    with open_place(plan.store, megabytes=64) as place:
        verdict = trio.run(functools.partial(torture, plan, place))
    print(*as_lines(verdict), sep="\n")
    return verdict


@pytest.mark.parametrize("store", STORES)
def test_whatever_is_done_to_the_workers_nothing_is_repeated_or_lost(store: StoreKind) -> None:
    plan = Torture(store=store, seconds=7, seed=1, pause=0.35, faulted=3, drain=120)
    verdict = run(plan)
    assert list(verdict.breaches) == []
    assert verdict.figures.blows["kill"] > 0
    assert verdict.figures.work["finished"] > 0


@pytest.mark.parametrize("store", STORES)
def test_without_fences_a_worker_that_was_overtaken_writes(store: StoreKind) -> None:
    plan = Torture(
        store=store,
        variant="no_fence",
        seconds=200,
        seed=2,
        pause=0.2,
        kills=0.0,
        faulted=1_000,
        until="fenced_out_wrote",
    )
    assert "fenced_out_wrote" in {breach.rule for breach in run(plan).breaches}


@pytest.mark.parametrize("store", STORES)
def test_with_claims_after_their_calls_effects_are_repeated(store: StoreKind) -> None:
    plan = Torture(
        store=store,
        variant="claim_late",
        seconds=200,
        seed=3,
        pause=0.2,
        kills=1.0,
        faulted=1_000,
        until="opaque_repeated",
    )
    assert "opaque_repeated" in {breach.rule for breach in run(plan).breaches}
