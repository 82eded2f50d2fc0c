import pytest

from harness.skills import SkillLimits


def test_the_usual_limits() -> None:
    assert SkillLimits() == SkillLimits(
        catalog_tokens=2_000, active=8, body_tokens=24_000, resource_bytes=131_072
    )


@pytest.mark.parametrize("field", ["catalog_tokens", "active", "body_tokens", "resource_bytes"])
@pytest.mark.parametrize("bad", [-1, True, float("nan"), "1", None])
def test_a_bound_that_is_none_is_refused(field: str, bad: object) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^SkillLimits\.{field} is "):
        SkillLimits(**{field: bad})  # type: ignore[arg-type]
