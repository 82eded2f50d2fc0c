"""What must hold whatever is done to the workers, and whether it held.

There are two kinds of rules. Those of `judge_trail` are broken by something that is there: a write
after its writer had been overtaken, an effect too many. They hold of every part of a trail, so they
can be asked while it is still being written. Those of `judge_end` are broken by something that is
missing as well, and are asked when all is over, with what the store holds then.

The judge believes no store: what a tool did it knows from the tool's own lines, and what should
have been done from the plan. What it calls *overtaken* is a part of a resumable call that was done
by two attempts, the later line being that of the earlier attempt: its worker was stopped in front
of the effect, woke up after another had taken over, and did it before it could hear so. Nothing
outside of the effect itself can prevent that; a tool that hands its receipt's attempt to whatever
carries out the effect can. For an opaque call there is no such pass: nobody takes over from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from tests.torture.plan import EFFECTS, Group
from tests.torture.trail import (
    DRIVER,
    Doubted,
    Effect,
    Ended,
    Failed,
    Left,
    Record,
    Refused,
    Struck,
    Took,
    Wrote,
)

__all__ = [
    "Answer",
    "Breach",
    "Figures",
    "FinalReceipt",
    "FinalRun",
    "Rule",
    "count_figures",
    "judge_end",
    "judge_trail",
]

Rule: TypeAlias = Literal[
    "fenced_out_wrote",
    "number_taken_twice",
    "settled_ran_again",
    "opaque_repeated",
    "part_repeated",
    "worker_failed",
    "run_lost",
    "commit_lost",
    "settlement_lost",
    "not_settled",
    "waits_for_nothing",
    "plan_not_followed",
    "effect_lost",
    "wrong_result",
    "doubt_not_told",
]
Plan: TypeAlias = Callable[[str], Mapping[Group, int]]
"""How often a run makes each of its calls."""


@attrs.frozen(kw_only=True)
class Breach:
    """A rule that was broken."""

    rule: Rule
    text: str


@attrs.frozen(kw_only=True)
class Answer:
    """What a run's transcript has as the result of a call."""

    group: Group
    succeeded: bool
    tokens: tuple[str, ...] = ()
    """The effects that the result names."""


@attrs.frozen(kw_only=True)
class FinalRun:
    """A run as the store has it when all is over."""

    run_id: str
    revision: int
    status: str
    waits_for: tuple[str, ...]
    """The questions, or the times, for which it waits."""
    asked: Mapping[Group, int]
    """Calls in all of its revisions; one that a compaction dropped has been asked as well."""
    answers: tuple[Answer, ...]
    faults: tuple[str, ...]
    """Why a revision of it is not settled."""


@attrs.frozen(kw_only=True)
class FinalReceipt:
    """A receipt as the store has it when all is over."""

    name: str
    group: Group
    status: str
    attempt: int
    in_doubt: bool


# -- what is there ------------------------------------------------------------------------------


def judge_trail(trail: Sequence[Record], plan: Plan) -> list[Breach]:
    """Return what a trail breaks. *trail* is in the order of time."""
    return [
        *_fenced_out(trail),
        *_taken_twice(trail),
        *_settled_again(trail),
        *_opaque_repeated(trail, plan),
        *_parts_repeated(trail),
        *_failures(trail),
    ]


def _fenced_out(trail: Iterable[Record]) -> Iterator[Breach]:
    """A write that a store was asked for when a higher number had been given out, and took."""
    when: defaultdict[str, list[int]] = defaultdict(list)
    highest: defaultdict[str, list[int]] = defaultdict(list)
    for each in trail:
        if isinstance(each, Took):
            numbers = highest[each.name]
            when[each.name].append(each.at)
            numbers.append(max(each.number, numbers[-1] if numbers else 0))
    for each in trail:
        if isinstance(each, Wrote) and each.name in when:
            before = bisect_left(when[each.name], each.asked)
            newest = highest[each.name][before - 1] if before else 0
            if newest > each.number:
                yield Breach(
                    rule="fenced_out_wrote",
                    text=f"{each.worker} did a {each.verb} of {each.name} under {each.number}, "
                    f"and {newest} had been given out",
                )


def _taken_twice(trail: Iterable[Record]) -> Iterator[Breach]:
    """A number that two workers were given, or a revision that two commits made."""
    seen: set[tuple[str, str, int]] = set()
    for each in trail:
        match each:
            case Took(name=name, number=number):
                one = ("took", name, number)
            case Wrote(verb="commit", name=name, revision=int(number)):
                one = ("committed", name, number)
            case _:
                continue
        if one in seen:
            text = f"{name}: {one[0]} {number} for a second time, by {each.worker}"
            yield Breach(rule="number_taken_twice", text=text)
        seen.add(one)


def _settled_again(trail: Iterable[Record]) -> Iterator[Breach]:
    """An attempt that was given out, or settled, beyond the one that had completed."""
    completed: dict[str, int] = {}
    last: dict[str, int] = {}
    for each in trail:
        match each:
            case Took(receipt=True, name=name, number=number):
                last[name] = max(number, last.get(name, 0))
            case Wrote(verb="settle", settlement="completed", name=name, number=number):
                completed[name] = min(number, completed.get(name, number))
                last[name] = max(number, last.get(name, 0))
    for name, number in completed.items():
        if last[name] > number:
            text = f"{name}: attempt {number} had completed, and there was an attempt {last[name]}"
            yield Breach(rule="settled_ran_again", text=text)


def _opaque_repeated(trail: Iterable[Record], plan: Plan) -> Iterator[Breach]:
    """An opaque effect that happened once more than it was asked for, and nobody was told."""
    happened: Counter[Group] = Counter()
    under: Counter[str] = Counter()
    doubted: Counter[Group] = Counter()
    groups: dict[str, Group] = {}
    doubts: set[str] = set()
    for each in trail:
        if isinstance(each, Doubted):
            doubts.add(each.receipt)
        elif isinstance(each, Effect) and EFFECTS[each.tool] == "opaque":
            group = (each.run_id, each.tool, each.item)
            happened[group] += 1
            if each.receipt:
                under[each.receipt] += 1
                groups[each.receipt] = group
    for receipt in doubts:
        if receipt in groups:
            doubted[groups[receipt]] += 1
    for receipt, count in under.items():
        if count > 1 and receipt not in doubts:
            text = f"{receipt}: its effect happened {count} times"
            yield Breach(rule="opaque_repeated", text=text)
    for group, count in happened.items():
        asked = plan(group[0]).get(group, 0)
        if count > asked + doubted[group]:
            text = f"{group}: asked for {asked} times, and happened {count} times"
            yield Breach(rule="opaque_repeated", text=text)


def _parts_repeated(trail: Iterable[Record]) -> Iterator[Breach]:
    """A part that was done again by an attempt that came after, or was, the one that did it."""
    done: dict[tuple[str, int], int] = {}
    for each in trail:
        if not isinstance(each, Effect) or EFFECTS[each.tool] != "resumable" or not each.receipt:
            continue
        part = (each.receipt, each.part)
        if part in done and each.attempt >= done[part]:
            text = f"{each.receipt}: attempt {each.attempt} repeated part {each.part}"
            yield Breach(rule="part_repeated", text=text)
        done[part] = max(each.attempt, done.get(part, 0))


def _failures(trail: Iterable[Record]) -> Iterator[Breach]:
    """A worker that met what no fault of its surroundings explains."""
    for each in trail:
        match each:
            case Failed(expected=False):
                text = f"{each.worker}: run {each.run_id!r}: {each.error}"
                yield Breach(rule="worker_failed", text=text)
            case Ended():
                text = f"{each.victim} ended by itself with {each.code}"
                yield Breach(rule="worker_failed", text=text)


# -- what is missing ----------------------------------------------------------------------------


def judge_end(
    trail: Sequence[Record],
    created: Iterable[str],
    runs: Sequence[FinalRun],
    receipts: Sequence[FinalReceipt],
    plan: Plan,
) -> list[Breach]:
    """Return what the end breaks: every run that was *created*, and all that the store holds."""
    by_id = {run.run_id: run for run in runs}
    lost = [
        Breach(rule="run_lost", text=f"the store has no run {run_id!r}")
        for run_id in created
        if run_id not in by_id
    ]
    return [
        *lost,
        *_lost_writes(trail, by_id, {each.name: each for each in receipts}),
        *(breach for run in runs for breach in _broken_by_run(run, plan)),
        *_wrong_answers(trail, runs),
        *_doubts_not_told(runs, receipts),
    ]


def _lost_writes(
    trail: Iterable[Record], runs: Mapping[str, FinalRun], receipts: Mapping[str, FinalReceipt]
) -> Iterator[Breach]:
    """A commit or a settlement that a store had taken, and does not have."""
    for each in trail:
        match each:
            case Wrote(verb="commit", name=name, revision=int(revision)):
                if name in runs and runs[name].revision < revision:
                    text = f"{name}: revision {revision} is gone, it is at {runs[name].revision}"
                    yield Breach(rule="commit_lost", text=text)
            case Wrote(verb="settle", name=name, number=number, settlement=settlement):
                found = receipts.get(name)
                later = found is not None and settlement == "failed" and found.attempt > number
                same = found is not None and (found.status, found.attempt) == (settlement, number)
                if not (later or same):
                    text = f"{name}: attempt {number} was {settlement}, and now it is {found}"
                    yield Breach(rule="settlement_lost", text=text)


def _broken_by_run(run: FinalRun, plan: Plan) -> Iterator[Breach]:
    for fault in run.faults:
        yield Breach(rule="not_settled", text=f"{run.run_id}: {fault}")
    if run.status != "finished" and not run.waits_for:
        text = f"{run.run_id} is {run.status!r} and waits for nothing that has a name"
        yield Breach(rule="waits_for_nothing", text=text)
    planned = plan(run.run_id)
    for group in {*run.asked, *planned}:
        asked, wanted = run.asked.get(group, 0), planned.get(group, 0)
        if asked > wanted or (run.status == "finished" and asked < wanted):
            text = f"{group}: asked for {asked} times in the transcript, planned {wanted} times"
            yield Breach(rule="plan_not_followed", text=text)


def _wrong_answers(trail: Iterable[Record], runs: Iterable[FinalRun]) -> Iterator[Breach]:
    """A success without its effect, or with that of another call."""
    done = {
        each.token: (each.run_id, each.tool, each.item)
        for each in trail
        if isinstance(each, Effect)
    }
    named: set[str] = set()
    for run in runs:
        for answer in run.answers:
            _, tool, _ = answer.group
            if not answer.succeeded or EFFECTS[tool] == "none":
                continue
            if not answer.tokens:
                text = f"{answer.group}: a success names no effect"
                yield Breach(rule="effect_lost", text=text)
            for token in answer.tokens:
                if token not in done:
                    text = f"{answer.group}: {token} was reported, and never happened"
                    yield Breach(rule="effect_lost", text=text)
                elif done[token] != answer.group or token in named:
                    text = f"{answer.group} was answered with {token}, an effect of {done[token]}"
                    yield Breach(rule="wrong_result", text=text)
                named.add(token)


def _doubts_not_told(
    runs: Iterable[FinalRun], receipts: Iterable[FinalReceipt]
) -> Iterator[Breach]:
    """A call of a finished run whose effect is in doubt, and whose result says success."""
    finished = {run.run_id for run in runs if run.status == "finished"}
    told = Counter(answer.group for run in runs for answer in run.answers if not answer.succeeded)
    doubted = Counter(each.group for each in receipts if each.in_doubt)
    for group, count in doubted.items():
        if group[0] in finished and told[group] < count:
            text = f"{group}: {count} in doubt, and the model was told of {told[group]}"
            yield Breach(rule="doubt_not_told", text=text)


# -- figures ------------------------------------------------------------------------------------

_LOST: Final = ("run_lost", "commit_lost", "settlement_lost", "effect_lost")


@attrs.frozen(kw_only=True)
class Figures:
    """What was done to the workers, what they did, and what was found."""

    blows: dict[str, int]
    """How often each thing was done to a worker, or to all."""
    kills_in_calls: int
    """Kills that came between a claim and its settlement."""
    work: dict[str, int]
    """Runs, legs, commits, claims and effects."""
    doubts: int
    """Receipts that ended in doubt: of calls that a worker had left, or that raised."""
    reported: int
    """Receipts of which a worker that came after was told so, and told its model."""
    refused: dict[str, int]
    """Writes of workers that had been overtaken, which the store refused."""
    errors: dict[str, int]
    """What the workers' runs ended with, where they did not end well."""
    overtaken: int
    """Parts of resumable calls that an overtaken attempt did again; see the module."""
    duplicates: int
    """Opaque effects beyond those that were asked for, reported or not."""
    losses: int
    breaches: dict[Rule, int]


def count_figures(
    trail: Sequence[Record],
    runs: Sequence[FinalRun],
    receipts: Sequence[FinalReceipt],
    breaches: Sequence[Breach],
    plan: Plan,
) -> Figures:
    """Return the figures of a torture."""
    statuses = Counter(run.status for run in runs)
    effects = [each for each in trail if isinstance(each, Effect)]
    work = {
        "runs": len(runs),
        "finished": statuses["finished"],
        "waiting": statuses["waiting_for_reply"] + statuses["waiting_for_wake"],
        "legs": sum(
            isinstance(each, Took) and not each.receipt and each.worker != DRIVER for each in trail
        ),
        "commits": sum(isinstance(each, Wrote) and each.verb == "commit" for each in trail),
        "claims": sum(isinstance(each, Took) and each.receipt for each in trail),
        "effects": len(effects),
    }
    parts = Counter(
        (each.receipt, each.part) for each in effects if EFFECTS[each.tool] == "resumable"
    )
    broken = Counter(breach.rule for breach in breaches)
    return Figures(
        blows=Counter(each.blow for each in trail if isinstance(each, Struck)),
        kills_in_calls=_kills_in_calls(trail, receipts),
        work=work,
        doubts=sum(each.in_doubt for each in receipts),
        reported=len({each.receipt for each in trail if isinstance(each, Doubted)}),
        refused=Counter(each.verb for each in trail if isinstance(each, Refused)),
        errors=Counter(each.code for each in trail if isinstance(each, Failed)),
        overtaken=sum(count - 1 for count in parts.values()),
        duplicates=_duplicates(effects, plan),
        losses=sum(broken[rule] for rule in _LOST),
        breaches=dict(broken),
    )


def _duplicates(effects: Iterable[Effect], plan: Plan) -> int:
    """Count the opaque effects that are too many, for their receipt or for their group."""
    under: defaultdict[Group, Counter[str]] = defaultdict(Counter)
    for each in effects:
        if EFFECTS[each.tool] == "opaque":
            under[each.run_id, each.tool, each.item][each.receipt] += 1
    return sum(
        max(
            receipts.total() - plan(group[0]).get(group, 0),
            sum(count - 1 for receipt, count in receipts.items() if receipt),
        )
        for group, receipts in under.items()
        if receipts.total() > 1
    )


def _kills_in_calls(trail: Iterable[Record], receipts: Iterable[FinalReceipt]) -> int:
    """Count the kills of workers that held a claim.

    A claim is no longer held if the worker said that it had settled it, or had left it; or if it
    was killed before it could say so, and the store has the settlement.
    """
    settled = {
        (each.name, each.attempt) for each in receipts if each.status in ("completed", "failed")
    }
    held: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    kills = 0
    for each in trail:
        match each:
            case Took(receipt=True):
                held[each.worker].add((each.name, each.number))
            case Wrote(verb="settle"):
                held[each.worker].discard((each.name, each.number))
            case Left(receipt=receipt, attempt=attempt):
                held[each.worker].discard((receipt, attempt))
            case Struck(blow="kill", victim=victim):
                kills += bool(held.pop(victim, set()) - settled)
    return kills
