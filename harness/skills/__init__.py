"""Skills: written know-how that a run loads when it needs it."""

from harness.skills._activation import (
    ApplyInstructions,
    SkillActivation,
    SkillsActivated,
    create_skill_activation,
)
from harness.skills._admission import (
    ACTIVE_SKILLS,
    BODY_TOKENS,
    SkillAdmission,
    admit_skill_load,
    estimate_skill_body_tokens,
)
from harness.skills._catalog import (
    CATALOG_TOKENS,
    CatalogEntry,
    SkillCatalog,
    catalog_line_tokens,
    partition_skill_catalog,
)
from harness.skills._confined import RESOURCE_ROWS, Obstacle, ResourceRow
from harness.skills._discovery import (
    DISCOVERY_PATH,
    DISCOVERY_SCHEMA,
    build_agent_skills_discovery_index,
    discovery_url,
)
from harness.skills._folder import (
    RESOURCE_BYTES,
    BrokenSkill,
    FoundSkill,
    FoundSkills,
    ResourceRefused,
    read_skills,
)
from harness.skills._limits import SkillLimits
from harness.skills._markdown import (
    YAML,
    ParsedSkill,
    SkillReading,
    UnreadableSkill,
    parse_skill_markdown,
    serialize_skill_markdown,
)
from harness.skills._registry import (
    RegisteredSkill,
    SkillRegistry,
    create_skill_registry,
    skill_ref,
)
from harness.skills._resolution import (
    DroppedSkill,
    DropReason,
    ExternalSkill,
    ExternalSource,
    SkillInstructions,
    SkillResolution,
    SkillStore,
    resolve_active_skill_instructions,
)
from harness.skills._skill import Skill, SkillLike, SkillOrigin, SkillSummary
from harness.skills._toolset import SkilledToolset, describe_catalog, with_skills
from harness.skills._yaml import pyyaml

__all__ = [
    "ACTIVE_SKILLS",
    "BODY_TOKENS",
    "CATALOG_TOKENS",
    "DISCOVERY_PATH",
    "DISCOVERY_SCHEMA",
    "RESOURCE_BYTES",
    "RESOURCE_ROWS",
    "YAML",
    "ApplyInstructions",
    "BrokenSkill",
    "CatalogEntry",
    "DropReason",
    "DroppedSkill",
    "ExternalSkill",
    "ExternalSource",
    "FoundSkill",
    "FoundSkills",
    "Obstacle",
    "ParsedSkill",
    "RegisteredSkill",
    "ResourceRefused",
    "ResourceRow",
    "Skill",
    "SkillActivation",
    "SkillAdmission",
    "SkillCatalog",
    "SkillInstructions",
    "SkillLike",
    "SkillLimits",
    "SkillOrigin",
    "SkillReading",
    "SkillRegistry",
    "SkillResolution",
    "SkillStore",
    "SkillSummary",
    "SkilledToolset",
    "SkillsActivated",
    "UnreadableSkill",
    "admit_skill_load",
    "build_agent_skills_discovery_index",
    "catalog_line_tokens",
    "create_skill_activation",
    "create_skill_registry",
    "describe_catalog",
    "discovery_url",
    "estimate_skill_body_tokens",
    "parse_skill_markdown",
    "partition_skill_catalog",
    "pyyaml",
    "read_skills",
    "resolve_active_skill_instructions",
    "serialize_skill_markdown",
    "skill_ref",
    "with_skills",
]
