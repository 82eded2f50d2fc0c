from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness._cli._folder import Folder, example_folder
from harness._messages import Message
from harness.testing import final_answer, run_harness, tool_call, tool_call_turn


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "b.txt").write_text("Two\n\nThe sea rises.\n", "utf-8")
    (tmp_path / "a.txt").write_text("One\nThe SEA falls.\n", "utf-8")
    (tmp_path / "secret.md").write_text("no", "utf-8")
    return Folder(tmp_path)


async def answer(folder: Folder, tool: str, /, **arguments: str) -> dict[str, object]:
    """What the model is told when it makes this call."""
    kit = run_harness(
        [tool_call_turn([tool_call(tool, {**arguments})]), final_answer("Yes.")],
        tools=folder.tools(),
    )
    messages: list[Message] = (await kit.run("?")).state.messages
    content = next(each["content"] for each in messages if each["role"] == "tool")
    assert isinstance(content, str)
    envelope: dict[str, object] = json.loads(content)
    return envelope


async def test_a_search_finds_lines_and_names_whatever_their_case(folder: Folder) -> None:
    found = await answer(folder, "search_text", word="sea")
    assert found["data"] == ["a.txt: The SEA falls.", "b.txt: The sea rises."]
    assert (await answer(folder, "search_text", word="A.TXT"))["data"] == [
        "a.txt: One",
        "a.txt: The SEA falls.",
    ]


async def test_a_search_that_finds_nothing_is_an_empty_result(folder: Folder) -> None:
    assert await answer(folder, "search_text", word="moon") == {"success": True, "data": []}


async def test_a_search_shows_a_bounded_number_of_lines(folder: Folder) -> None:
    (folder.path / "long.txt").write_text("the same line\n" * 500, "utf-8")
    found = (await answer(folder, "search_text", word="same"))["data"]
    assert isinstance(found, list)
    assert len(found) == 12


async def test_a_word_that_is_too_long_is_refused(folder: Folder) -> None:
    assert (await answer(folder, "search_text", word="x" * 21))["kind"] == "validation"


async def test_a_file_is_read_whole(folder: Folder) -> None:
    assert (await answer(folder, "read_file", name="b.txt"))["data"] == "Two\n\nThe sea rises.\n"


@pytest.mark.parametrize("name", ["secret.md", "../a.txt", "", "nothing.txt"])
async def test_only_the_folders_own_texts_can_be_read(folder: Folder, name: str) -> None:
    refused = await answer(folder, "read_file", name=name)
    assert refused["success"] is False
    assert f"there is no file {name!r}, expected one of ['a.txt', 'b.txt']" in str(refused["error"])


def test_the_model_is_told_which_files_there_are(folder: Folder) -> None:
    definition = json.loads(json.dumps(folder.tools()[1].definition))
    assert definition["function"]["parameters"]["properties"]["name"]["enum"] == ["a.txt", "b.txt"]


def test_the_examples_are_a_few_short_texts_of_one_sentence_a_line() -> None:
    folder = Folder(example_folder())
    assert folder.names == ["bees.txt", "bread.txt", "lighthouses.txt", "tides.txt"]
    for name in folder.names:
        title, blank, *sentences = (folder.path / name).read_text("utf-8").splitlines()
        assert (title.lower() + ".txt", blank) == (name, "")
        assert all(sentence.endswith(".") for sentence in sentences)
        assert 5 <= len(sentences) <= 10


def test_an_installed_package_has_the_texts_beside_its_files(tmp_path: Path) -> None:
    source = tmp_path / "harness" / "_cli" / "_folder.py"
    assert example_folder(source) == tmp_path / "docs" / "examples" / "folder"
    source.with_name("folder").mkdir(parents=True)
    assert example_folder(source) == source.with_name("folder")
