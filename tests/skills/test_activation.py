from collections.abc import Mapping

import pytest
import trio

from harness.skills import (
    ExternalSkill,
    SkillActivation,
    SkillInstructions,
    SkillsActivated,
    SkillStore,
    create_skill_activation,
    create_skill_registry,
)
from tests.skills.examples import skill


class Host:
    """What a host keeps, and what it was given to apply."""

    def __init__(self, *active: str, **shas: str) -> None:
        registry = create_skill_registry(print, hash_text=lambda body: f"sha of {body.decode()}")
        registry.register_platform(skill("tides", "Tides."))
        registry.register_platform(skill("charts", "Charts."))
        self.active = [*active]
        self.shas = {f"platform:{name}": sha for name, sha in shas.items()}
        self.applied: list[list[str]] = []
        self.asked = 0
        self.error: Exception | None = None
        self.store = SkillStore(registry=registry, external_source=self.external)

    async def external(
        self, refs: tuple[str, ...], pinned: Mapping[str, str]
    ) -> Mapping[str, ExternalSkill]:
        self.asked += 1
        return {"team:a": ExternalSkill(body="A.", sha="1")} if "team:a" in refs else {}

    async def apply(self, instructions: tuple[SkillInstructions, ...]) -> None:
        await trio.lowlevel.checkpoint()
        self.applied.append([each.body for each in instructions])
        if self.error is not None:
            raise self.error

    def activation(self) -> SkillActivation:
        return create_skill_activation(
            available_skills={"platform:tides", "platform:charts", "team:a", "team:gone"},
            active_skills=self.active,
            loaded_skill_shas=self.shas,
            store=self.store,
            apply_instructions=self.apply,
        )


@pytest.mark.rule("R-SKILL-16")
async def test_the_hosts_own_containers_are_changed_in_place() -> None:
    host = Host()
    active, shas = host.active, host.shas
    activation = host.activation()
    try:
        await activation.activate_skills(["platform:tides"])
        raise RuntimeError("the run fails later")
    except RuntimeError:
        pass
    assert (active, shas) == (["platform:tides"], {"platform:tides": "sha of Tides."})
    assert host.active is active


@pytest.mark.rule("R-SKILL-17")
async def test_loading_a_second_skill_applies_both() -> None:
    host = Host()
    activation = host.activation()
    first = await activation.activate_skills(["platform:tides"])
    second = await activation.activate_skills(["platform:charts", "platform:charts", "team:a"])
    assert first == SkillsActivated(loaded=("platform:tides",))
    assert second == SkillsActivated(loaded=("platform:charts", "team:a"))
    assert host.applied == [["Tides."], ["Charts.", "Tides.", "A."]]
    assert host.active == ["platform:tides", "platform:charts", "team:a"]


@pytest.mark.rule("R-SKILL-18")
async def test_nothing_changes_if_applying_or_resolving_raises() -> None:
    host = Host("platform:tides", tides="sha of Tides.")
    host.error = OSError("no")
    with pytest.raises(OSError, match="^no$"):
        await host.activation().activate_skills(["platform:charts"])
    assert (host.active, host.shas) == (["platform:tides"], {"platform:tides": "sha of Tides."})
    host.store = SkillStore(registry=host.store.registry, external_source=_down)
    with pytest.raises(OSError, match="^down$"):
        await host.activation().activate_skills(["platform:charts", "team:a"])
    assert (host.active, host.shas) == (["platform:tides"], {"platform:tides": "sha of Tides."})


async def _down(refs: object, pinned: object) -> Mapping[str, ExternalSkill]:
    raise OSError("down")


@pytest.mark.rule("R-SKILL-18")
async def test_nothing_changes_if_applying_is_cancelled() -> None:
    host = Host()
    with trio.CancelScope() as scope:
        scope.cancel()
        await host.activation().activate_skills(["platform:tides"])
    assert scope.cancelled_caught
    assert (host.active, host.shas) == ([], {})


@pytest.mark.rule("R-SKILL-18")
async def test_what_does_not_resolve_is_reported_and_not_added() -> None:
    host = Host()
    done = await host.activation().activate_skills(["team:gone", "platform:tides", "elsewhere"])
    assert done.loaded == ("platform:tides",)
    assert [(each.ref, each.reason) for each in done.dropped] == [
        ("elsewhere", "not_available"),
        ("team:gone", "unknown"),
    ]
    assert host.active == ["platform:tides"]
    assert host.applied == [["Tides."]]
    only_bad = await host.activation().activate_skills(["team:gone"])
    assert (only_bad.loaded, len(only_bad.dropped)) == ((), 1)
    assert host.applied == [["Tides."]]


@pytest.mark.rule("R-SKILL-18")
async def test_nothing_new_resolves_nothing() -> None:
    host = Host("team:a")
    assert await host.activation().activate_skills(["team:a"]) == SkillsActivated()
    assert await host.activation().activate_skills([]) == SkillsActivated()
    assert (host.asked, host.applied, host.shas) == (0, [], {})


@pytest.mark.rule("R-SKILL-14")
async def test_what_was_loaded_with_another_text_is_not_loaded() -> None:
    host = Host(tides="an older one")
    done = await host.activation().activate_skills(["platform:tides"])
    assert [each.reason for each in done.dropped] == ["pinned_version_unavailable"]
    assert (host.active, host.shas) == ([], {"platform:tides": "an older one"})
