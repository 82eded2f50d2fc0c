"""``harness run`` with tools of servers, and with folders of skills."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_run import ROOT, TOOLS, calls, harness_run, text
from tests.providers.server import Server, in_turn, open_server

TIDES = f"{sys.executable} {ROOT / 'docs' / 'examples' / 'tide_server.py'}"


def asked(server: Server, number: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(server.requests[number].body)
    return body


def names(server: Server) -> list[str]:
    return [each["function"]["name"] for each in asked(server)["tools"]]


@pytest.mark.rule("R-CLI-08")
async def test_the_tools_of_a_server_stand_beside_those_of_a_module() -> None:
    script = in_turn([calls(("high_tide", '{"harbour": "Dover"}')), text("At 11:42.")])
    async with open_server(script) as server:
        ended = await harness_run(server, "--mcp", TIDES, "--tools", f"{TOOLS}:shout")
    assert ended.code == 0, ended.err
    assert "At 11:42." in ended.out.splitlines()
    assert {"shout", "high_tide"} <= set(names(server))
    answer = asked(server, 1)["messages"][-1]
    assert "11:42" in answer["content"]


@pytest.mark.rule("R-CLI-08")
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("no-such-program --now", 1, "no-such-program"),
        (f"{sys.executable} -c 'raise SystemExit(3)'", 1, "the server"),
        ("", 2, "expected an address or a command"),
        ("'unclosed", 2, "is no command"),
        ("http://", 2, "no host"),
    ],
)
async def test_a_server_that_cannot_be_used_is_an_error_before_anything_is_asked(
    command: str, code: int, said: str
) -> None:
    async with open_server(text("never")) as server:
        ended = await harness_run(server, "--mcp", command)
    assert ended.code == code, ended.err
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert server.requests == []


@pytest.mark.rule("R-CLI-09")
async def test_the_model_loads_the_skills_of_a_folder(tmp_path: Path) -> None:
    for name, body in (
        ("tides", "---\nname: tides\ndescription: When the water is high.\n---\nAsk in Dover.\n"),
        ("broken", "no frontmatter"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(body)
    script = in_turn([calls(("load_skill", '{"name": "tides"}')), text("I asked in Dover.")])
    async with open_server(script) as server:
        ended = await harness_run(server, "--skills", str(tmp_path))
    assert ended.code == 0, ended.err
    assert "When the water is high." in json.dumps(asked(server)["tools"])
    assert "Ask in Dover." in asked(server, 1)["messages"][-1]["content"]
    assert "broken" in ended.err
    assert "is left out" in ended.err


@pytest.mark.rule("R-CLI-09")
async def test_a_folder_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    ended = await harness_run(None, "--skills", str(tmp_path / "nowhere"))
    assert ended.code == 2
    assert "nowhere" in ended.err
    assert "Traceback" not in ended.err
