"""Skills, and folders of them, for tests."""

import os
from pathlib import Path

from hypothesis import strategies as st

from harness import JSON
from harness.skills import Skill
from harness.skills._skill import FIELD_KEYS
from tests.strategies import texts, words

skill_names = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True)

awkward_texts = (
    st.text(st.characters(codec="utf-8"), max_size=60)
    | st.sampled_from(
        ["---", "a: b", "Use when: x", "yes", "null", "~", "1e3", "0x1F", "12:30:45", "- a", "#"]
    )
    | st.text("-: \n#'\"{}[]&*!|>%@`\t\x85\u2028\ufeff\x00\x07é😀", max_size=20)
)

metadata_values: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | awkward_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(awkward_texts, inner, max_size=3),
    max_leaves=8,
)

bodies = st.lists(awkward_texts | st.sampled_from(["---", "# Heading", "", "```"]), max_size=5).map(
    "\n".join
)

skills = st.builds(
    Skill,
    name=skill_names,
    description=words | awkward_texts.filter(str.strip),
    when_to_use=texts | awkward_texts,
    body=bodies,
    metadata=st.dictionaries(
        awkward_texts.filter(lambda key: key not in FIELD_KEYS), metadata_values, max_size=3
    ),
)


def skill(
    name: str = "tides",
    body: str = "Look at the table.",
    *,
    description: str = "Reads tides.",
    when_to_use: str = "",
) -> Skill:
    return Skill(name=name, description=description, when_to_use=when_to_use, body=body)


def write_skill(
    root: Path,
    name: str = "tides",
    *,
    text: str | None = None,
    files: dict[str, str | bytes] | None = None,
) -> Path:
    """Write a skill in a folder of its own below *root*."""
    folder = root / name
    folder.mkdir(parents=True)
    plain = f"---\nname: {name}\ndescription: All about {name}.\n---\n\n# {name}\n\nDo it.\n"
    (folder / "SKILL.md").write_text(plain if text is None else text, "utf-8")
    for path, content in (files or {}).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def link(target: str | Path, at: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, at)
