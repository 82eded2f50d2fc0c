import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import JSON
from harness.errors import NotJSONError
from harness.skills import Skill
from harness.skills._skill import check_metadata, is_skill_name, one_line, slug, tokens_of

GOOD = ["a", "7", "pdf", "pdf-forms", "a-1-b", "x" * 64]
BAD = ["", "-a", "a-", "a--b", "Bad_Name", "PDF", "é", "a b", "x" * 65, "a\n", "a.b", None, 7]


@pytest.mark.rule("R-SKILL-05")
@pytest.mark.parametrize("name", GOOD)
def test_a_name_in_the_public_format_is_one(name: str) -> None:
    assert is_skill_name(name)
    assert Skill(name=name, description="d").name == name


@pytest.mark.rule("R-SKILL-05")
@pytest.mark.parametrize("name", BAD)
def test_any_other_name_is_refused(name: object) -> None:
    assert not is_skill_name(name)
    with pytest.raises(ValueError, match=r"^Skill\.name is .*, expected at most 64 lower-case"):
        Skill(name=name, description="d")  # type: ignore[arg-type]


@given(st.text())
def test_a_slug_is_a_name_or_empty(text: str) -> None:
    found = slug(text)
    assert found == "" or is_skill_name(found)
    assert slug(found) == found


def test_a_slug_is_as_close_as_it_gets() -> None:
    assert slug("Fill PDF_Forms!") == "fill-pdf-forms"
    assert slug("x" * 63 + " y") == "x" * 63
    assert slug("潮汐") == ""


def test_a_body_has_plain_line_ends_and_no_blank_lines_around_it() -> None:
    assert Skill(name="a", description="d", body="\r\n\n  x\r\ny\rz\n\n").body == "  x\ny\nz"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("description", ""),
        ("description", " \n"),
        ("description", None),
        ("description", "\ud800"),
        ("when_to_use", None),
        ("when_to_use", "\ud800"),
        ("body", 7),
        ("body", "\udfff"),
    ],
)
def test_a_text_that_cannot_be_written_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^Skill\.{field} is .*, expected a text"):
        Skill(**{"name": "a", "description": "d", field: value})  # type: ignore[arg-type]


def test_metadata_is_json_and_holds_no_field() -> None:
    with pytest.raises(TypeError, match=r"^Skill\.metadata is \[\], expected a dictionary$"):
        Skill(name="a", description="d", metadata=[])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^Skill\.metadata has 'whenToUse', expected no key of"):
        Skill(name="a", description="d", metadata={"whenToUse": 1})
    with pytest.raises(NotJSONError):
        Skill(name="a", description="d", metadata={"x": math.nan})


def test_metadata_is_measured_before_it_is_looked_into() -> None:
    bomb: list[JSON] = []
    for _ in range(30):
        bomb = [*[bomb] * 10]
    circle: list[JSON] = []
    circle.append(circle)
    for value in (bomb, circle, {"a": bomb}):
        with pytest.raises(NotJSONError, match="more than 10000 values|nested more than 32"):
            check_metadata(value)
    assert check_metadata({"a": [1, {"b": None}]}) == 5


def test_tokens_are_four_characters_and_white_space_is_one_space() -> None:
    assert [tokens_of(n) for n in (0, 1, 4, 5, 9)] == [0, 1, 1, 2, 3]
    assert one_line(" a\n\n- b\tc\u2028d ") == "a - b c d"
