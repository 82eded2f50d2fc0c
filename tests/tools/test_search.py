import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools import Plugin, ToolMatch, ToolRegistry
from harness.tools._search import ToolIndex
from tests.strategies import texts
from tests.tools.plugins import flat


def index_of(*tools: str) -> ToolIndex:
    """Return an index of tools that are written ``plugin.tool: description``."""
    index = ToolIndex()
    for each in tools:
        name, _, description = each.partition(": ")
        plugin, _, tool = name.rpartition(".")
        index.add(ToolMatch(tool=tool, plugin=plugin, description=description))
    return index


def found(index: ToolIndex, query: str, limit: int = 10) -> list[str]:
    return [each.tool for each in index.search(query, limit).matches]


def test_names_count_more_than_plugins_and_these_more_than_descriptions() -> None:
    index = index_of("p.a: the mail", "mail.b: x", "p.mail: x", "p.c: x")
    assert found(index, "mail") == ["mail", "b", "a"]
    assert repr(index) == "<ToolIndex of 4 tools>"


def test_a_tool_is_found_by_the_description_of_its_plugin() -> None:
    registry: ToolRegistry[Plugin] = ToolRegistry()
    registry.register(flat("a", "x", "y", description="Books rooms."))
    registry.register(flat("b", "room"))
    assert [each.tool for each in registry.search("room").matches] == ["room", "x", "y"]


def test_more_words_count_more_than_any_one() -> None:
    index = index_of("p.send: x", "q.r: please send some mail")
    assert found(index, "send mail") == ["r", "send"]
    assert found(index, "send send send") == ["send", "r"]


def test_whole_words_count_more_than_beginnings_and_short_ones_are_no_beginnings() -> None:
    index = index_of("p.calendars: x", "p.calendar: x", "p.recalendar: x")
    assert found(index, "calendar") == ["calendar", "calendars"]
    assert found(index, "cal") == ["calendars", "calendar"]
    assert found(index, "ca") == []


def test_equals_stay_in_order() -> None:
    index = index_of("p.c: mail", "p.a: mail", "p.b: mail mail mail")
    assert found(index, "mail") == ["c", "a", "b"]


@pytest.mark.parametrize(
    "query", ["read file", "READ_FILE", "readFile", "Read-File!", "ＲＥＡＤ file"]
)
@pytest.mark.parametrize("name", ["read_file", "readFile", "read-file", "ReadFile"])
def test_words_are_compared_without_case_and_however_they_are_joined(query: str, name: str) -> None:
    index = index_of(f"p.{name}: x", "p.reads: x")
    assert found(index, query)[0] == name
    assert len(found(index, "file")) == 1


def test_umlauts_and_sharp_s_are_words_too() -> None:
    assert found(index_of("p.a: Straße in Köln"), "STRASSE köln") == ["a"]


@pytest.mark.parametrize("query", ["", " ", "!?", "_"])
def test_a_query_without_words_finds_the_first_ones(query: str) -> None:
    result = index_of("p.a: x", "p.b: x", "p.c: x").search(query, 2)
    assert [each.tool for each in result.matches] == ["a", "b"]
    assert result.total == 3


def test_what_was_added_after_a_search_is_found() -> None:
    index = index_of("p.mail: x")
    assert found(index, "mai") == ["mail"]
    index.add(ToolMatch(tool="mailbox", plugin="p", description=""))
    assert found(index, "mai") == ["mail", "mailbox"]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_limit_is_a_positive_count(limit: int) -> None:
    registry: ToolRegistry[Plugin] = ToolRegistry()
    registry.register(flat("a"))
    with pytest.raises((TypeError, ValueError), match="^limit is "):
        registry.search("a", limit=limit)
    assert registry.search("a").total == 1


@given(st.lists(st.tuples(texts, texts, texts), max_size=6), texts, st.integers(1, 5))
def test_a_search_answers_the_same_and_within_its_limit(
    tools: list[tuple[str, str, str]], query: str, limit: int
) -> None:
    index = ToolIndex()
    for plugin, tool, description in tools:
        index.add(ToolMatch(tool=tool, plugin=plugin, description=description))
    result = index.search(query, limit)
    assert result == index.search(query, limit)
    assert len(result.matches) == min(limit, result.total)
    assert result.total <= len(index)


@given(
    st.lists(st.from_regex(r"[a-z]{3,9}( [a-z]{3,9}){0,3}", fullmatch=True), min_size=1, max_size=6)
)
def test_every_tool_is_found_by_every_word_and_every_beginning(descriptions: list[str]) -> None:
    index = index_of(*(f"p.{number}: {text}" for number, text in enumerate(descriptions)))
    for number, text in enumerate(descriptions):
        for word in text.split():
            for query in (word, word[:3]):
                assert str(number) in found(index, query, len(index))


def test_ten_thousand_tools_and_hostile_texts_are_searched_at_once() -> None:
    index = ToolIndex()
    for number in range(10_000):
        index.add(
            ToolMatch(tool=f"act_{number}", plugin="p", description="for people at work " * 9)
        )
    index.add(ToolMatch(tool="huge", plugin="p", description="word" * 2_500_000))
    started = time.process_time()
    assert index.search("act", 10).total == 10_000
    assert index.search("people work " * 100_000, 10).total == 10_000
    assert index.search("x" * 10_000_000, 10).total == 0
    assert time.process_time() - started < 1
