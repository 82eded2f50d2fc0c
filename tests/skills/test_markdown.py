import datetime as dt
import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import JSON
from harness.skills import (
    YAML,
    ParsedSkill,
    Skill,
    UnreadableSkill,
    parse_skill_markdown,
    pyyaml,
    serialize_skill_markdown,
)
from tests.skills.examples import skill, skills
from tests.strategies import json_values

REAL = pyyaml()


def parsed(text: str, *, yaml: YAML = REAL, fallback_name: str | None = None) -> ParsedSkill:
    reading = parse_skill_markdown(text, yaml, fallback_name=fallback_name)
    assert isinstance(reading, ParsedSkill), reading
    return reading


def refused(text: str, *, yaml: YAML = REAL) -> str:
    reading = parse_skill_markdown(text, yaml)
    assert isinstance(reading, UnreadableSkill), reading
    return reading.reason


def returning(value: object) -> YAML:
    return YAML(load=lambda text: value, dump=json.dumps)


@pytest.mark.rule("R-SKILL-23")
def test_the_hosts_yaml_is_the_only_one_that_is_called() -> None:
    loaded: list[str] = []

    def load(text: str) -> object:
        loaded.append(text)
        return {"name": "tides", "description": "Reads tides."}

    stub = YAML(load=load, dump=lambda value: f"dumped: {value}")
    found = parsed("---\n%%% no yaml at all\n---\nBody.\n", yaml=stub)
    assert loaded == ["%%% no yaml at all\n"]
    assert found == ParsedSkill(skill=skill(body="Body."))
    text = serialize_skill_markdown(found.skill, stub)
    assert text.startswith("---\ndumped: {'name': 'tides', 'description': 'Reads tides.'}\n---\n")


@pytest.mark.rule("R-SKILL-24")
def test_an_unquoted_colon_is_repaired_with_one_warning() -> None:
    found = parsed("---\nname: x\ndescription: Use when: it's x\nlicense: MIT\n---\nBody.")
    assert found.skill.description == "Use when: it's x"
    assert found.skill.metadata == {"license": "MIT"}
    assert found.warnings == ("a value with a colon was not quoted, and was read as if it were",)


@pytest.mark.rule("R-SKILL-24")
def test_what_yaml_reads_is_not_touched_and_what_is_refused_is_read_once_more() -> None:
    loaded: list[str] = []

    def load(text: str) -> object:
        loaded.append(text)
        return REAL.load(text)

    counting = YAML(load=load, dump=REAL.dump)
    parsed("---\nname: x\ndescription: 'Use when: x'\n---\n", yaml=counting)
    assert len(loaded) == 1
    loaded.clear()
    text = '---\nname: [\ndescription: "a: b" c: d\nnested:\n  key: a: b\nother: a: b\n---\n'
    reason = refused(text, yaml=counting)
    assert loaded == [
        'name: [\ndescription: "a: b" c: d\nnested:\n  key: a: b\nother: a: b\n',
        "name: [\ndescription: \"a: b\" c: d\nnested:\n  key: a: b\nother: 'a: b'\n",
    ]
    assert reason.startswith("its frontmatter cannot be read: while parsing a flow")


@pytest.mark.rule("R-SKILL-25")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\nname: x\n---\nBody.", "its frontmatter has no description, expected one"),
        ("---\nname: x\ndescription: ' '\n---\n", "its frontmatter has no description, exp"),
        ("---\ndescription: [x]\n---\n", "its frontmatter has no description, expected one"),
        ("---\n{\n---\nBody.", "its frontmatter cannot be read: "),
        ("---\ndescription: !!python/name:os.system\n---\n", "its frontmatter cannot be read: "),
        ("---\nname: x\ndescription: y\n", "its frontmatter is not closed, expected a second"),
        ("---", "its frontmatter is not closed, expected a second line '---'"),
        ("# Just Markdown\n", "it does not begin with a line '---', expected a frontmatter"),
        ("", "it does not begin with a line '---', expected a frontmatter"),
        ("---\n---\n", "its frontmatter is a NoneType, expected keys with a description"),
        ("---\n- a\n---\n", "its frontmatter is a list, expected keys with a description"),
    ],
)
def test_two_things_fail_and_failure_is_returned(text: str, reason: str) -> None:
    assert refused(text).startswith(reason)


@pytest.mark.rule("R-SKILL-25")
def test_whatever_else_is_wrong_is_read() -> None:
    found = parsed(
        "---\nname: [a]\ndescription: 7\nwhen_to_use: {}\nwhen-to-use: Now.\nbad: .nan\n"
        "1: x\n---\n\n\nBody."
    )
    assert found.skill == Skill(
        name="skill", description="7", when_to_use="Now.", body="Body.", metadata={}
    )
    assert found.warnings == (
        "description is of type int, and was taken as the text '7'",
        "name is of type list, expected lower-case words; it is called 'skill'",
        "when_to_use is of type dict, expected a text; it was left out",
        "the key 'bad' was left out: not JSON at bad: nan is no JSON number",
        "the key of type int was left out: not JSON: the key 1 is not a text",
    )


@pytest.mark.rule("R-SKILL-26")
@pytest.mark.parametrize(
    ("line", "body", "fallback", "name"),
    [
        ("", "# The Tides!\n", "from-folder", "from-folder"),
        ("", "Text.\n\n## The Tides!\n# Other", None, "the-tides"),
        ("", "Text.", None, "skill"),
        ("name: 潮汐", "# Tides", None, "tides"),
        ("name: Fill_PDF forms", "# Tides", "folder", "fill-pdf-forms"),
        ("name: ''", "", "The Folder", "the-folder"),
        ("name: 2024", "", None, "2024"),
    ],
)
def test_a_name_that_is_missing_or_bad_is_made_with_a_warning(
    line: str, body: str, fallback: str | None, name: str
) -> None:
    found = parsed(f"---\n{line}\ndescription: d\n---\n{body}", fallback_name=fallback)
    assert found.skill.name == name
    (warning,) = found.warnings
    assert warning.endswith(f"expected lower-case words; it is called {name!r}")


@pytest.mark.rule("R-SKILL-26")
def test_a_byte_order_mark_and_windows_line_ends_are_tolerated() -> None:
    found = parsed("\ufeff---\r\nname: x\r\ndescription: d\r\n---  \r\n\r\nOne.\r\nTwo.\r\n")
    assert found == ParsedSkill(skill=Skill(name="x", description="d", body="One.\nTwo."))


@pytest.mark.rule("R-SKILL-26")
@pytest.mark.parametrize("key", ["when_to_use", "when-to-use", "whenToUse"])
def test_when_to_use_has_three_spellings(key: str) -> None:
    found = parsed(f"---\nname: x\ndescription: d\n{key}: Now.\n---\n")
    assert found == ParsedSkill(skill=Skill(name="x", description="d", when_to_use="Now."))


@pytest.mark.rule("R-SKILL-26")
def test_unknown_keys_are_kept() -> None:
    found = parsed(
        "---\nname: x\ndescription: d\nlicense: MIT\nallowed-tools: Bash(git:*) Read\n"
        'updated: 2026-01-02\nmetadata:\n  author: me\n  version: "1.0"\n---\n'
    )
    assert found.skill.metadata == {
        "license": "MIT",
        "allowed-tools": "Bash(git:*) Read",
        "updated": "2026-01-02",
        "metadata": {"author": "me", "version": "1.0"},
    }
    assert found.warnings == ()


@pytest.mark.rule("R-SKILL-26")
def test_a_date_of_the_hosts_yaml_is_kept_as_a_text() -> None:
    fields = {"name": "x", "description": "d", "updated": dt.date(2026, 1, 2)}
    assert parsed("---\n---\n", yaml=returning(fields)).skill.metadata == {"updated": "2026-01-02"}


@pytest.mark.rule("R-SKILL-27")
@given(skills)
def test_what_is_written_reads_as_the_same_skill(written: Skill) -> None:
    text = serialize_skill_markdown(written, REAL)
    assert parsed(text) == ParsedSkill(skill=written)
    assert parsed("\ufeff" + text.replace("\n", "\r\n")) == ParsedSkill(skill=written)


@pytest.mark.rule("R-SKILL-27")
def test_keys_have_one_order_and_dashes_in_a_body_survive() -> None:
    first = skill(body="One.\n---\nTwo.\n---", when_to_use="Now.")
    for keys in (["b", "a"], ["a", "b"]):
        metadata: dict[str, JSON] = {key: {**dict.fromkeys(keys, 1)} for key in keys}
        written = Skill(
            name="tides", description=first.description, when_to_use="Now.", body=first.body,
            metadata=metadata,
        )  # fmt: skip
        assert serialize_skill_markdown(written, REAL) == (
            "---\nname: tides\ndescription: Reads tides.\nwhen_to_use: Now.\na:\n  a: 1\n  b: 1\n"
            "b:\n  a: 1\n  b: 1\n---\n\nOne.\n---\nTwo.\n---\n"
        )


def test_a_frontmatter_that_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"^the frontmatter of 'tides' has 7\d{4} characters, exp"):
        serialize_skill_markdown(skill(description="x" * 70_000), REAL)


LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
MERGES = "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "text",
    [
        f"---\ndescription: d\na0: &a0 [x]\n{LAUGHS}---\n",
        f"---\ndescription: d\na0: &a0 {{x: y}}\n{MERGES}---\n",
        "---\ndescription: d\na: " + "[" * 10_000 + "]" * 10_000 + "\n---\n",
        "---\ndescription: d\na: " + "{a: " * 10_000 + "}" * 10_000 + "\n---\n",
        "---\ndescription: d\na:\n" + "- " * 10_000 + "x\n---\n",
        "---\n" + "\n".join(f"{' ' * n}a:" for n in range(350)) + "\n---\n",
        "---\ndescription: d\na: " + "x" * 10_000_000 + "\n---\n",
        "---\n" + "a\n" * 5_000_000,
        "x" * 10_000_000,
        "---\ndescription: d: " + "a " * 30_000 + "\n---\n",
        "---\ndescription: x" + " " * 60_000 + "x: y\n  a\n---\n",
        "---\nname: 0x" + "f" * 60_000 + "\ndescription: d\n---\n",
        "---\ndescription: d\nn: " + "1" * 10_000 + "\n---\n",
        "---\ndescription: d\nn: " + "1:" * 20_000 + "1\n---\n",
        "---\n" + "\x00\x01\xff" * 10_000 + "\n---\n",
    ],
    ids=range(15),
)
def test_hostile_files_are_refused_at_once(text: str) -> None:
    started = time.perf_counter()
    reading = parse_skill_markdown(text, REAL)
    assert time.perf_counter() - started < 5
    if isinstance(reading, UnreadableSkill):
        assert len(reading.reason) < 500
    else:
        assert reading.warnings
        assert reading.skill.metadata == {}


@pytest.mark.parametrize("long", ["body", "keys"])
def test_a_long_body_and_many_keys_take_no_time_to_speak_of(long: str) -> None:
    keys = "\n".join(f"k{n}: 1" for n in range(5_000)) if long == "keys" else "k: 1"
    body = "# x\n---\n" * (1_000_000 if long == "body" else 1)
    started = time.perf_counter()
    found = parsed(f"---\ndescription: d\n{keys}\n---\n{body}")
    assert time.perf_counter() - started < 10
    assert found.skill.name == "x"


def _bomb() -> object:
    value: object = "x"
    for _ in range(40):
        value = [value] * 10
    return value


@pytest.mark.parametrize("key", ["name", "description", "when_to_use", "other"])
def test_a_bomb_of_the_hosts_yaml_does_not_go_off(key: str) -> None:
    fields = {"name": "x", "description": "d", key: _bomb()}
    reading = parse_skill_markdown("---\n---\nBody.", returning(fields))
    if key == "description":
        assert isinstance(reading, UnreadableSkill)
    else:
        assert isinstance(reading, ParsedSkill)
        assert len(reading.warnings) == 1
        assert reading.skill.metadata == {}


@pytest.mark.parametrize("error", [ValueError("no\n  way"), RecursionError(), MemoryError()])
def test_whatever_the_hosts_yaml_raises_is_a_refusal(error: Exception) -> None:
    def load(text: str) -> object:
        raise error

    reason = refused("---\na: 1\n---\n", yaml=YAML(load=load, dump=str))
    text = str(error) or type(error).__name__
    assert reason == f"its frontmatter cannot be read: {' '.join(text.split())}"


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace"))
)
def test_random_bytes_are_read_or_refused(content: bytes) -> None:
    parse_skill_markdown(content.decode(errors="replace"), REAL)
    parse_skill_markdown("---\n" + content.decode("latin-1") + "\n---\n", REAL)


@given(st.dictionaries(st.text() | st.integers(), json_values | st.text()) | json_values)
def test_random_values_are_read_or_refused(value: object) -> None:
    dump: Callable[[object], str] = REAL.dump
    text = f"---\n{dump(value)}---\nBody."
    assert isinstance(parse_skill_markdown(text, REAL), ParsedSkill | UnreadableSkill)
    parse_skill_markdown("---\n---\nBody.", returning(value))


@given(st.text(st.characters(), max_size=50))
def test_lone_surrogates_are_refused_or_left_out(text: str) -> None:
    fields = {"name": text, "description": text, "when_to_use": text, text: text}
    parse_skill_markdown(f"---\n---\n{text}", returning(fields))
    parse_skill_markdown(f"---\ndescription: d\n---\n{text}\udc80", REAL)
    assert refused("---\ndescription: d\n---\n\ud800") == (
        "its body holds a lone surrogate, expected Unicode"
    )
