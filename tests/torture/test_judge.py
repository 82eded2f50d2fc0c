"""The judge, on planted histories: it says nothing of a good one, and finds each fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.torture.judge import (
    Answer,
    FinalReceipt,
    FinalRun,
    Rule,
    count_figures,
    judge_end,
    judge_trail,
)
from tests.torture.plan import Group
from tests.torture.trail import (
    Doubted,
    Effect,
    Ended,
    Failed,
    Left,
    Record,
    Struck,
    Took,
    Wrote,
)

RUN = "run-1"
PAY: Group = (RUN, "pay", "a")
BUILD: Group = (RUN, "build", "b")
PLAN: Mapping[Group, int] = {PAY: 1, BUILD: 1}


def plan(run_id: str) -> Mapping[Group, int]:
    return PLAN if run_id == RUN else {}


def took(at: int, number: int, name: str = RUN, worker: str = "w1") -> Took:
    return Took(worker=worker, at=at, name=name, number=number, receipt=name != RUN)


def commit(at: int, fence: int, revision: int, *, asked: int | None = None) -> Wrote:
    return Wrote(
        worker="w1",
        at=at,
        verb="commit",
        name=RUN,
        number=fence,
        asked=at if asked is None else asked,
        revision=revision,
    )


def settle(
    at: int, attempt: int, name: str = "pay-receipt", settlement: str = "completed"
) -> Wrote:
    return Wrote(
        worker="w1",
        at=at,
        verb="settle",
        name=name,
        number=attempt,
        asked=at,
        settlement=settlement,
    )


def effect(
    at: int, group: Group = PAY, *, receipt: str = "pay-receipt", attempt: int = 1, part: int = 0
) -> Effect:
    run_id, tool, item = group
    return Effect(
        worker="w1",
        at=at,
        run_id=run_id,
        tool=tool,
        item=item,
        part=part,
        token=f"token-{at}",
        receipt=receipt,
        attempt=attempt,
    )


GOOD: tuple[Record, ...] = (
    took(1, 1),
    took(2, 1, "pay-receipt"),
    effect(3),
    settle(4, 1),
    took(5, 1, "build-receipt"),
    effect(6, BUILD, receipt="build-receipt", part=0),
    Struck(worker="driver", at=7, blow="kill", victim="w1"),
    took(8, 2, worker="w2"),
    took(9, 2, "build-receipt", worker="w2"),
    effect(10, BUILD, receipt="build-receipt", attempt=2, part=1),
    settle(11, 2, "build-receipt"),
    commit(12, 2, 1),
)
FINISHED = FinalRun(
    run_id=RUN,
    revision=1,
    status="finished",
    waits_for=(),
    asked=PLAN,
    answers=(
        Answer(group=PAY, succeeded=True, tokens=("token-3",)),
        Answer(group=BUILD, succeeded=True, tokens=("token-6", "token-10")),
    ),
    faults=(),
)
RECEIPTS = (
    FinalReceipt(name="pay-receipt", group=PAY, status="completed", attempt=1, in_doubt=False),
    FinalReceipt(name="build-receipt", group=BUILD, status="completed", attempt=2, in_doubt=False),
)


def broken(*records: Record) -> list[str]:
    trail = sorted(records, key=lambda each: each.at)
    return [breach.rule for breach in judge_trail(trail, plan)]


def broken_at_end(
    *records: Record,
    run: FinalRun | None = FINISHED,
    receipts: tuple[FinalReceipt, ...] = RECEIPTS,
) -> list[str]:
    runs = () if run is None else (run,)
    trail = sorted(records or GOOD, key=lambda each: each.at)
    return [breach.rule for breach in judge_end(trail, [RUN], runs, receipts, plan)]


def test_nothing_is_wrong_if_a_worker_was_killed_and_another_took_over() -> None:
    assert broken(*GOOD) == []
    assert broken_at_end() == []


def test_a_write_is_a_breach_once_a_higher_number_had_been_given_out() -> None:
    assert broken(took(1, 1), took(5, 2, worker="w2"), commit(9, 1, 1, asked=6)) == [
        "fenced_out_wrote"
    ]
    assert broken(took(1, 1, "r"), took(5, 2, "r"), settle(9, 1, "r", "failed")) == [
        "fenced_out_wrote"
    ]


def test_a_write_that_was_asked_for_before_the_higher_number_was_known_is_none() -> None:
    assert broken(took(1, 1), took(5, 2, worker="w2"), commit(9, 1, 1, asked=4)) == []


def test_the_highest_number_counts_and_not_the_last() -> None:
    late = took(6, 2, worker="w3")  # what it was told came late
    assert broken(took(5, 3, worker="w2"), late, commit(9, 2, 1)) == ["fenced_out_wrote"]


def test_a_number_is_given_out_once_and_a_revision_made_once() -> None:
    assert broken(took(1, 1), took(2, 1, worker="w2")) == ["number_taken_twice"]
    assert broken(took(1, 1), commit(2, 1, 1), commit(3, 1, 1)) == ["number_taken_twice"]
    assert broken(took(1, 1), commit(2, 1, 1), commit(3, 1, 2)) == []


def test_what_has_completed_is_not_claimed_again() -> None:
    first = (took(1, 1, "r"), settle(2, 1, "r"))
    assert broken(*first, took(3, 2, "r")) == ["settled_ran_again"]
    failed = (took(1, 1, "r"), settle(2, 1, "r", "failed"))
    assert broken(*failed, took(3, 2, "r"), settle(4, 2, "r")) == []


def test_an_opaque_effect_happens_once_for_each_receipt() -> None:
    assert broken(effect(1), effect(2, attempt=2)) == ["opaque_repeated", "opaque_repeated"]


def test_an_opaque_effect_happens_as_often_as_it_was_asked_for_whatever_its_receipts_are() -> None:
    assert broken(effect(1, receipt="r1"), effect(2, receipt="r2")) == ["opaque_repeated"]
    assert broken(effect(1, receipt=""), effect(2, receipt="")) == ["opaque_repeated"]
    assert broken(effect(1, receipt="")) == []


def test_an_opaque_effect_that_was_reported_as_doubtful_is_no_breach_if_it_is_repeated() -> None:
    doubt = Doubted(worker="w2", at=2, receipt="pay-receipt")
    assert broken(effect(1), doubt, effect(3, attempt=2)) == []


def test_a_part_is_not_repeated_by_an_attempt_that_came_after_it() -> None:
    def part(at: int, attempt: int) -> Effect:
        return effect(at, BUILD, receipt="b", attempt=attempt)

    assert broken(part(1, 1), part(2, 1)) == ["part_repeated"]
    assert broken(part(1, 1), part(2, 2)) == ["part_repeated"]
    assert broken(part(1, 2), part(2, 1)) == []  # it was overtaken, and could not know


def test_a_worker_that_failed_is_a_breach_unless_its_surroundings_did() -> None:
    failed = Failed(worker="w1", at=1, run_id=RUN, code="store.full", error="", expected=True)
    assert broken(failed) == []
    assert broken(msgspec.structs.replace(failed, expected=False)) == ["worker_failed"]
    assert broken(Ended(worker="driver", at=1, victim="w1", code=1)) == ["worker_failed"]


def test_a_run_that_was_made_is_there() -> None:
    assert broken_at_end(run=None) == ["run_lost"]


def test_a_commit_that_was_taken_is_there() -> None:
    assert broken_at_end(run=attrs.evolve(FINISHED, revision=0)) == ["commit_lost"]


def test_a_settlement_that_was_taken_is_there() -> None:
    pay, build = RECEIPTS
    for other in (
        attrs.evolve(pay, status="running"),
        attrs.evolve(pay, status="ambiguous"),
        attrs.evolve(pay, attempt=2),
    ):
        assert broken_at_end(receipts=(other, build)) == ["settlement_lost"]
    assert broken_at_end(receipts=(build,)) == ["settlement_lost"]


def test_a_failure_may_have_been_followed_by_another_attempt() -> None:
    records = (*GOOD, settle(13, 1, "other", "failed"))
    later = FinalReceipt(name="other", group=PAY, status="completed", attempt=2, in_doubt=False)
    assert broken_at_end(*records, receipts=(*RECEIPTS, later)) == []
    assert broken_at_end(*records, receipts=(*RECEIPTS, attrs.evolve(later, attempt=1))) == [
        "settlement_lost"
    ]


def test_a_transcript_is_settled_in_every_revision() -> None:
    faults = ("revision 1: a call without a result",)
    assert broken_at_end(run=attrs.evolve(FINISHED, faults=faults)) == ["not_settled"]


def test_a_run_that_has_not_finished_waits_for_something() -> None:
    waiting = attrs.evolve(FINISHED, status="waiting_for_reply")
    assert broken_at_end(run=waiting) == ["waits_for_nothing"]
    assert broken_at_end(run=attrs.evolve(waiting, waits_for=("which one?",))) == []


def test_a_transcript_asks_for_what_was_planned() -> None:
    assert broken_at_end(run=attrs.evolve(FINISHED, asked={PAY: 1})) == ["plan_not_followed"]
    assert broken_at_end(run=attrs.evolve(FINISHED, asked={**PLAN, PAY: 2})) == [
        "plan_not_followed"
    ]
    half = attrs.evolve(FINISHED, asked={PAY: 1}, status="waiting_for_reply", waits_for=("?",))
    assert broken_at_end(run=half) == []


@pytest.mark.parametrize(
    ("tokens", "rule"),
    [
        ((), "effect_lost"),
        (("token-99",), "effect_lost"),
        (("token-6",), "wrong_result"),
    ],
    ids=["none", "unknown", "of another call"],
)
def test_a_success_names_an_effect_of_its_own_call(tokens: tuple[str, ...], rule: str) -> None:
    pay = Answer(group=PAY, succeeded=True, tokens=tokens)
    assert broken_at_end(run=attrs.evolve(FINISHED, answers=(pay,))) == [rule]


def test_two_equal_calls_are_not_answered_with_one_effect() -> None:
    pay = Answer(group=PAY, succeeded=True, tokens=("token-3",))
    assert broken_at_end(run=attrs.evolve(FINISHED, answers=(pay, pay))) == ["wrong_result"]


def test_a_read_has_nothing_to_name() -> None:
    look = Answer(group=(RUN, "look", "c"), succeeded=True)
    assert broken_at_end(run=attrs.evolve(FINISHED, answers=(look,))) == []


def test_a_doubt_is_told_to_the_model_by_the_time_that_the_run_has_finished() -> None:
    pay = attrs.evolve(RECEIPTS[0], status="ambiguous", in_doubt=True)
    receipts, trail = (pay, RECEIPTS[1]), GOOD[:3] + GOOD[4:]
    untold = attrs.evolve(FINISHED, answers=())
    told = attrs.evolve(FINISHED, answers=(Answer(group=PAY, succeeded=False),))
    assert broken_at_end(*trail, run=untold, receipts=receipts) == ["doubt_not_told"]
    assert broken_at_end(*trail, run=told, receipts=receipts) == []
    waiting = attrs.evolve(untold, status="waiting_for_reply", waits_for=("?",))
    assert broken_at_end(*trail, run=waiting, receipts=receipts) == []


def test_every_rule_was_seen_to_be_broken_here() -> None:
    text = Path(__file__).read_text("utf-8")
    assert [rule for rule in get_args(Rule) if f'"{rule}"' not in text] == []


@given(st.lists(st.sampled_from(GOOD), unique_by=lambda each: each.at))
def test_a_trail_of_which_only_parts_have_been_read_shows_no_breach_that_is_not_there(
    records: list[Record],
) -> None:
    assert broken(*records) == []


# -- figures ------------------------------------------------------------------------------------


def test_kills_are_counted_that_came_between_a_claim_and_its_settlement() -> None:
    def kills(*records: Record, receipts: tuple[FinalReceipt, ...] = ()) -> int:
        return count_figures(records, (), receipts, (), plan).kills_in_calls

    killed = Struck(worker="driver", at=9, blow="kill", victim="w1")
    claim = took(1, 1, "pay-receipt")
    assert kills(claim, killed) == 1
    assert kills(killed, claim) == 0
    assert kills(claim, settle(2, 1), killed) == 0
    assert kills(claim, Left(worker="w1", at=2, receipt="pay-receipt", attempt=1), killed) == 0
    assert kills(took(1, 1, "pay-receipt", worker="w2"), killed) == 0
    # It was settled, and the worker died before it could write that down.
    assert kills(claim, killed, receipts=RECEIPTS) == 0


def test_duplicates_and_overtaken_parts_are_counted_apart() -> None:
    records = [
        effect(1),
        effect(2, attempt=2),
        effect(3, BUILD, receipt="b", attempt=2),
        effect(4, BUILD, receipt="b", attempt=1),
    ]
    figures = count_figures(records, (), (), (), plan)
    assert (figures.duplicates, figures.overtaken, figures.work["effects"]) == (1, 1, 4)


def test_blows_doubts_and_losses_are_counted() -> None:
    pay = attrs.evolve(RECEIPTS[0], in_doubt=True)
    breaches = judge_end(GOOD, [RUN, "run-2"], [FINISHED], RECEIPTS, plan)
    figures = count_figures(GOOD, [FINISHED], [pay], breaches, plan)
    assert figures.blows == Counter(kill=1)
    assert (figures.doubts, figures.losses, figures.breaches) == (1, 1, {"run_lost": 1})
    assert figures.work["legs"] == 2
