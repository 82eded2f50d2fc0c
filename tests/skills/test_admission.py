import math

import pytest

from harness.skills import (
    ACTIVE_SKILLS,
    BODY_TOKENS,
    SkillInstructions,
    admit_skill_load,
    estimate_skill_body_tokens,
)


@pytest.mark.rule("R-SKILL-19")
@pytest.mark.parametrize(
    ("count", "tokens", "admitted"),
    [
        (None, None, True),
        (3, None, True),
        (99, None, False),
        (None, 10, True),
        (None, 99_999, False),
        (3, 10, True),
        (99, 10, False),
        (3, 99_999, False),
    ],
)
def test_a_measure_that_is_left_out_leaves_its_bound_out(
    count: int | None, tokens: int | None, admitted: bool
) -> None:
    verdict = admit_skill_load(count, tokens)
    assert verdict.admitted is admitted
    assert bool(verdict.reason) is not admitted


@pytest.mark.rule("R-SKILL-20")
@pytest.mark.parametrize("bad", [math.nan, -1, -0.5, True, False, "1", [], object(), 1j])
def test_a_measure_that_makes_no_sense_refuses(bad: object) -> None:
    for verdict in (admit_skill_load(bad), admit_skill_load(None, bad), admit_skill_load(1, bad)):
        assert not verdict.admitted
        assert verdict.reason.startswith("No skill can be loaded now: there is no telling")


@pytest.mark.rule("R-SKILL-21")
def test_eight_skills_and_twenty_four_thousand_tokens_are_the_most() -> None:
    assert (ACTIVE_SKILLS, BODY_TOKENS) == (8, 24_000)
    assert admit_skill_load(7, 24_000).admitted
    assert ": 8 of at most 8 skills are loaded already" in admit_skill_load(8).reason
    assert "about 24001 of at most 24000 tokens" in admit_skill_load(None, 24_001).reason
    assert not admit_skill_load(math.inf).admitted
    assert admit_skill_load(9, most_active=10).admitted
    assert not admit_skill_load(None, 5, most_tokens=4).admitted


def test_a_bound_that_is_no_count_is_the_callers_fault() -> None:
    with pytest.raises(ValueError, match=r"^most_active is -1, expected at least 0$"):
        admit_skill_load(1, most_active=-1)
    with pytest.raises(TypeError, match=r"^most_tokens is True, expected an int$"):
        admit_skill_load(1, most_tokens=True)


@pytest.mark.rule("R-SKILL-22")
@pytest.mark.parametrize(("sizes", "tokens"), [([], 0), ([9], 3), ([4, 4], 2), ([1, 1, 1], 1)])
def test_tokens_are_all_characters_by_four_rounded_up(sizes: list[int], tokens: int) -> None:
    texts = [
        SkillInstructions(ref="r", name="n", origin="platform", body="é" * size, sha="")
        for size in sizes
    ]
    assert estimate_skill_body_tokens(texts) == tokens
