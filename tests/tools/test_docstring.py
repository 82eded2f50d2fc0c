import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools._docstring import Description, read_docstring

GOOGLE = """Find things.

    Looks everywhere,
    twice.

    Args:
        query: What to find.
        limit (int, optional): At most so many,
            and no more: none.
        *names: Others.
        bare:
            On the next line.
        url: See http://example.org: it is there.

    Returns:
        found: What was found.
    """

REST = """Find things.

    Looks everywhere,
    twice.

    :param query: What to find.
    :param int limit: At most so many,
        and no more: none.
    :type limit: int
    :arg names: Others.
    :param bare:
        On the next line.
    :param url: See http://example.org: it is there.
    :returns: What was found.
    :raises KeyError: never
    """


@pytest.mark.parametrize("docstring", [GOOGLE, REST])
def test_both_ways_of_writing_say_the_same(docstring: str) -> None:
    assert read_docstring(docstring) == Description(
        text="Find things.\n\nLooks everywhere,\ntwice.",
        parameters={
            "query": "What to find.",
            "limit": "At most so many, and no more: none.",
            "names": "Others.",
            "bare": "On the next line.",
            "url": "See http://example.org: it is there.",
        },
    )


@pytest.mark.parametrize("docstring", [None, "", "   \n  "])
def test_no_docstring_says_nothing(docstring: str | None) -> None:
    assert read_docstring(docstring) == Description()


def test_prose_with_colons_is_prose() -> None:
    text = "Do this: that.\n\nArgs are described elsewhere:\n    x: not here"
    assert read_docstring(text) == Description(text=text)


def test_a_parameter_section_after_another_section_is_read() -> None:
    described = read_docstring(
        "Do.\n\nReturns:\n    x: no\n\nArgs:\n    y: yes\n\nMore.\n    z: no"
    )
    assert described == Description(text="Do.", parameters={"y": "yes"})


def test_a_blank_line_parts_entries_of_one_section() -> None:
    described = read_docstring("Do.\n\nArgs:\n    x: one\n\n    y: two")
    assert described.parameters == {"x": "one", "y": "two"}


def test_what_stands_before_the_first_entry_of_a_section_is_dropped() -> None:
    described = read_docstring("Do.\n\nArgs:\n    as follows\n    x: one")
    assert described == Description(text="Do.", parameters={"x": "one"})


def test_a_field_ends_where_prose_begins() -> None:
    assert read_docstring("Do.\n\n:param x: one\nprose\n    more").parameters == {"x": "one"}


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    described = read_docstring(text)
    assert described.text == described.text.strip()
    assert all(described.parameters.values())


names = st.text("abc_", min_size=1, max_size=6)
words = st.text("aB9.,", min_size=1, max_size=9)


@given(
    st.dictionaries(names, st.lists(words, min_size=1, max_size=12).map(" ".join), max_size=5),
    st.integers(10, 60),
)
def test_what_was_written_is_read_however_it_was_wrapped(
    parameters: dict[str, str], width: int
) -> None:
    google, rest = ["Do.", "", "Args:"], ["Do.", ""]
    for name, text in parameters.items():
        first, *more = _wrapped(text, width)
        google += [f"    {name}: {first}", *(f"        {line}" for line in more)]
        rest += [f":param {name}: {first}", *(f"    {line}" for line in more)]
    assert read_docstring("\n".join(google)).parameters == parameters
    assert read_docstring("\n".join(rest)).parameters == parameters


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
