import itertools
from collections.abc import Mapping
from typing import get_args

import pytest
import trio

from harness.skills import (
    DropReason,
    ExternalSkill,
    SkillResolution,
    create_skill_registry,
    resolve_active_skill_instructions,
)
from harness.skills._resolution import DROP_TEXTS
from tests.skills.examples import skill

REGISTRY = create_skill_registry(print, hash_text=lambda body: f"sha of {body.decode()}")
REGISTRY.register_plugin("sea", skill("boats", "Boats."))
REGISTRY.register_platform(skill("tides", "Tides."))
REGISTRY.register_platform(skill("charts", "Charts."))

REFS = ("platform:tides", "platform:boats", "platform:charts", "team:b", "team:a", "z")
AVAILABLE = frozenset(REFS)


class Source:
    """External skills, and what was asked of them."""

    def __init__(self, **skills: ExternalSkill) -> None:
        self.skills = {name.replace("__", ":"): each for name, each in skills.items()}
        self.asked: list[tuple[tuple[str, ...], dict[str, str]]] = []

    async def __call__(
        self, refs: tuple[str, ...], pinned: Mapping[str, str]
    ) -> Mapping[str, ExternalSkill]:
        await trio.lowlevel.checkpoint()
        self.asked.append((refs, dict(pinned)))
        return self.skills


def source() -> Source:
    return Source(
        team__a=ExternalSkill(body="A.", name="zebra", sha="1"),
        team__b=ExternalSkill(body="B.", name="ant", sha="2"),
        z=ExternalSkill(body="Z.", sha="3"),
        not_asked=ExternalSkill(body="X."),
    )


async def resolved(
    refs: object,
    *,
    available: object = AVAILABLE,
    of: Source | None = None,
    pins: Mapping[str, str] | None = None,
) -> SkillResolution:
    return await resolve_active_skill_instructions(
        refs,  # type: ignore[arg-type]
        available,  # type: ignore[arg-type]
        registry=REGISTRY,
        external_source=of,
        pinned_shas=pins,
    )


@pytest.mark.rule("R-SKILL-10")
async def test_a_loaded_skill_brings_its_body() -> None:
    found = await resolved(["platform:tides"])
    (text,) = found.instructions
    assert (text.ref, text.name, text.origin) == ("platform:tides", "tides", "platform")
    assert (text.body, text.sha, found.dropped) == ("Tides.", "sha of Tides.", ())


@pytest.mark.rule("R-SKILL-11")
async def test_the_order_is_by_origin_then_name_whatever_the_order_of_the_refs() -> None:
    names = ["charts", "tides", "boats", "ant", "z", "zebra"]
    first = await resolved(REFS, of=source())
    assert [each.name for each in first.instructions] == names
    for refs in itertools.permutations(REFS):
        assert await resolved([*refs, refs[0]], of=source()) == first


@pytest.mark.rule("R-SKILL-12")
async def test_external_refs_are_asked_for_all_at_once_or_not_at_all() -> None:
    asked = source()
    refs = [f"x{n}" for n in range(5)]
    await resolved([*refs, "platform:tides"], available={*refs, "platform:tides"}, of=asked)
    assert asked.asked == [(tuple(refs), {})]
    asked = source()
    await resolved(["platform:tides", "not-available"], of=asked)
    assert asked.asked == []


@pytest.mark.rule("R-SKILL-13")
async def test_the_hashes_of_a_run_bring_back_the_bodies_that_it_saw() -> None:
    versions = {"1": "Old.", "2": "New."}
    newest = "1"

    async def versioned(
        refs: tuple[str, ...], pinned: Mapping[str, str]
    ) -> Mapping[str, ExternalSkill]:
        shas = {ref: pinned.get(ref, newest) for ref in refs}
        return {ref: ExternalSkill(body=versions[sha], sha=sha) for ref, sha in shas.items()}

    async def body(pins: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        found = await resolve_active_skill_instructions(
            ["z"], ["z"], registry=REGISTRY, external_source=versioned, pinned_shas=pins
        )
        return found.instructions[0].body, found.shas

    assert await body({}) == ("Old.", {"z": "1"})
    newest = "2"
    assert await body({}) == ("New.", {"z": "2"})
    assert await body({"z": "1", "other": "7"}) == ("Old.", {"z": "1"})


@pytest.mark.rule("R-SKILL-14")
async def test_a_text_with_another_hash_than_its_pin_is_dropped() -> None:
    pins = {"platform:tides": "gone", "z": "gone", "team:a": "1"}
    asked = source()
    found = await resolved(
        ["platform:tides", "platform:charts", "z", "team:a"], of=asked, pins=pins
    )
    assert [each.body for each in found.instructions] == ["Charts.", "A."]
    assert [(each.ref, each.reason) for each in found.dropped] == [
        ("platform:tides", "pinned_version_unavailable"),
        ("z", "pinned_version_unavailable"),
    ]
    assert asked.asked == [(("team:a", "z"), {"team:a": "1", "z": "gone"})]


@pytest.mark.rule("R-SKILL-15")
async def test_a_ref_that_means_nothing_is_dropped_with_a_reason() -> None:
    refs = ["platform:boats", "platform:gone", "unknown", "z"]
    found = await resolved(refs, available=["platform:gone", "unknown", "z"], of=source())
    assert [each.ref for each in found.instructions] == ["z"]
    assert [(each.ref, each.reason) for each in found.dropped] == [
        ("platform:boats", "not_available"),
        ("platform:gone", "unknown"),
        ("unknown", "unknown"),
    ]
    without = await resolved(["z"])
    assert [each.reason for each in without.dropped] == ["unknown"]


@pytest.mark.rule("R-SKILL-15")
async def test_what_the_source_raises_passes_out() -> None:
    async def failing(refs: object, pinned: object) -> Mapping[str, ExternalSkill]:
        raise OSError("down")

    with pytest.raises(OSError, match="^down$"):
        await resolve_active_skill_instructions(
            ["z"], ["z"], registry=REGISTRY, external_source=failing
        )


def test_every_reason_has_a_text_for_the_model() -> None:
    assert {*DROP_TEXTS} == {*get_args(DropReason)}


def test_an_external_skill_is_hashed_unless_its_source_has_a_hash() -> None:
    assert ExternalSkill(body="x").sha.startswith("2d711642b726b044")
