"""How much room the skills of a run may take."""

from __future__ import annotations

import attrs

from harness._bounds import check_amount, check_count
from harness.skills._admission import ACTIVE_SKILLS, BODY_TOKENS
from harness.skills._catalog import CATALOG_TOKENS
from harness.skills._folder import RESOURCE_BYTES

__all__ = ["SkillLimits"]


@attrs.frozen(kw_only=True)
class SkillLimits:
    """Bounds for the skills of a run."""

    catalog_tokens: float = attrs.field(default=CATALOG_TOKENS)
    """For the entries of the catalog; what does not fit is told by its name alone."""
    active: int = attrs.field(default=ACTIVE_SKILLS)
    """Skills that may be loaded."""
    body_tokens: int = attrs.field(default=BODY_TOKENS)
    """For the bodies of all loaded skills."""
    resource_bytes: int = attrs.field(default=RESOURCE_BYTES)
    """Of the largest file that is read for the model."""

    @catalog_tokens.validator
    def _check_tokens(self, _: object, value: object) -> None:
        check_amount("SkillLimits.catalog_tokens", value)

    @active.validator
    @body_tokens.validator
    @resource_bytes.validator
    def _check_count(self, attribute: attrs.Attribute[int], value: object) -> None:
        check_count(f"SkillLimits.{attribute.name}", value)
