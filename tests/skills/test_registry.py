import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.skills import SkillRegistry, create_skill_registry, skill_ref
from tests.skills.examples import skill


class Host:
    """A skill of a host's own class."""

    def __init__(self, name: object = "tides", body: object = "Body.", **fields: object) -> None:
        self.name = name
        self.description = fields.get("description", "Reads tides.")
        self.when_to_use = fields.get("when_to_use", "")
        self.body = body
        self.rendered = 0

    def render(self) -> str:
        self.rendered += 1
        return self.body  # type: ignore[return-value]


def made() -> tuple[SkillRegistry, list[str]]:
    warnings: list[str] = []
    return create_skill_registry(warnings.append), warnings


@pytest.mark.rule("R-SKILL-01")
def test_skills_of_the_host_and_of_plugins_are_listed() -> None:
    registry, warnings = made()
    assert registry.register_plugin("sea", skill("waves")) == "platform:waves"
    assert registry.register_platform(Host("tides", when_to_use="Near water.")) == "platform:tides"  # type: ignore[arg-type]
    first, second = registry.summaries(["sea"])
    assert (first.ref, first.name, first.origin) == ("platform:tides", "tides", "platform")
    assert (first.description, first.when_to_use) == ("Reads tides.", "Near water.")
    assert (second.ref, second.name, second.origin) == ("platform:waves", "waves", "plugin")
    assert warnings == []
    assert repr(registry) == "<SkillRegistry of 2 skills>"


@pytest.mark.rule("R-SKILL-02")
def test_skills_of_plugins_that_are_not_available_are_left_out() -> None:
    registry, _ = made()
    registry.register_platform(skill("tides"))
    registry.register_plugin("sea", skill("waves"))
    registry.register_plugin("sky", skill("clouds"))
    names = [[each.name for each in registry.summaries(p)] for p in ([], ["sky"], ["sky", "sea"])]
    assert names == [["tides"], ["tides", "clouds"], ["tides", "clouds", "waves"]]


@pytest.mark.rule("R-SKILL-03")
def test_of_two_skills_with_one_name_the_first_counts() -> None:
    registry, warnings = made()
    assert registry.register_platform(skill("tides", "First.")) == skill_ref("tides")
    late = Host("tides", "Second.")
    assert registry.register_plugin("sea", late) is None  # type: ignore[arg-type]
    known = registry.get("platform:tides")
    assert known is not None
    assert (known.body, known.plugin, late.rendered) == ("First.", None, 0)
    assert warnings == [
        "a skill was left out: a second skill is called 'tides', expected one of each name"
    ]
    assert registry.get("tides") is None


@pytest.mark.rule("R-SKILL-04")
def test_a_body_is_rendered_and_hashed_once_when_it_is_registered() -> None:
    registry, _ = made()
    host = Host(body="é")
    registry.register_platform(host)  # type: ignore[arg-type]
    host.body = "changed"
    registry.summaries()
    known = registry.get("platform:tides")
    assert known is not None
    assert (host.rendered, known.body) == (1, "é")
    assert known.sha == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"


@pytest.mark.rule("R-SKILL-04")
def test_the_hash_can_be_the_hosts() -> None:
    registry = create_skill_registry(print, hash_text=lambda body: f"h{len(body)}")
    registry.register_platform(skill(body="éé"))
    known = registry.get("platform:tides")
    assert known is not None
    assert known.sha == "h4"


@pytest.mark.rule("R-SKILL-05")
@pytest.mark.parametrize(
    ("host", "warning"),
    [
        (Host("Bad_Name"), "its name is 'Bad_Name', expected at most 64 lower-case letters, dig"),
        (Host("a--b"), "its name is 'a--b', expected at most 64"),
        (Host("x" * 65), "its name is 'xxx"),
        (Host(7), "its name is 7, expected"),
        (Host(description=""), "the description of 'tides' is '', expected a text"),
        (Host(description=" \n"), "the description of 'tides' is ' \\n', expected a text"),
        (Host(description="\ud800"), "the description of 'tides' is '\\ud800', expected a text"),
        (Host(when_to_use=None), "the when_to_use of 'tides' is None, expected a text"),
        (Host(body=""), "the body of 'tides' is '', expected a text"),
        (Host(body=" \n"), "the body of 'tides' is ' \\n', expected a text"),
        (Host(body=b"x"), "the body of 'tides' is b'x', expected a text"),
    ],
)
def test_a_bad_skill_is_left_out_with_a_warning(host: Host, warning: str) -> None:
    registry, warnings = made()
    assert registry.register_platform(host) is None  # type: ignore[arg-type]
    assert registry.summaries() == ()
    assert len(warnings) == 1
    assert warnings[0].startswith(f"a skill was left out: {warning}")


def test_what_render_raises_passes_out_and_nothing_is_registered() -> None:
    class Failing(Host):
        def render(self) -> str:
            raise OSError("gone")

    registry, _ = made()
    with pytest.raises(OSError, match="^gone$"):
        registry.register_platform(Failing())  # type: ignore[arg-type]
    assert registry.summaries() == ()


@given(st.permutations(["a", "b", "c", "d", "e"]))
def test_the_order_of_registering_does_not_show(names: list[str]) -> None:
    registry, _ = made()
    for name in names:
        if name in "ace":
            registry.register_plugin("p", skill(name))
        else:
            registry.register_platform(skill(name))
    assert "".join(each.name for each in registry.summaries({"p"})) == "bdace"
