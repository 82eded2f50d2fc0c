"""Runs that are kept: processes are killed, and others go on with what they left."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from harness.checkpoints import RunKey, checkpoint_of, create_checkpoint
from harness.stores import open_sqlite_store
from harness.testing import run_harness, tool_call, tool_call_turn
from tests.cli.stored_tools import approve
from tests.cli.test_run import Ended, calls, environment, read_until, text
from tests.providers.server import Script, Server, in_turn, open_server

ROOT = Path(__file__).parents[2]
TOOLS = [f"tests.cli.stored_tools:{name}" for name in ("pay", "pay_slowly", "dawdle", "approve")]
SHORT = ("--lease", "1")


@attrs.frozen
class Place:
    """A store, and the file in which effects are counted."""

    folder: Path

    @property
    def store(self) -> tuple[str, str]:
        return ("--store", str(self.folder / "runs.db"))

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    async def harness(self, *words: str, **environ: str) -> Ended:
        done = await trio.run_process(
            [sys.executable, "-m", "harness", *words],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=self.environ(environ),
            cwd=ROOT,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    @asynccontextmanager
    async def started(self, *words: str, **environ: str) -> AsyncIterator[trio.Process]:
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    [sys.executable, "-m", "harness", *words],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    check=False,
                    env=self.environ(environ),
                    cwd=ROOT,
                )
            )
            yield process

    def environ(self, more: dict[str, str]) -> dict[str, str]:
        return {**environment(), "EFFECTS": str(self.folder / "effects"), **more}

    async def begin(self, server: Server, *words: str, **environ: str) -> Ended:
        return await self.harness(*self.begun(server, *words), **environ)

    def begun(self, server: Server, *words: str) -> list[str]:
        at = ["--model", "m", "--base-url", server.base_url, *self.store, *SHORT, *words]
        return ["run", "Go.", *at, "--tools", *TOOLS]

    async def only_run(self) -> dict[str, object]:
        listed = await self.harness("runs", *self.store, "--json")
        assert listed.code == 0, listed.err
        (line,) = listed.out.splitlines()
        found: dict[str, object] = json.loads(line)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def scripted(*scripts: Script) -> Script:
    return in_turn(scripts)


def run_id_of(ended: Ended) -> str:
    found = re.search(r"harness run: (\S+) is kept in", ended.err)
    assert found is not None, ended.err
    return found[1]


@pytest.mark.rule("R-CLI-10", "R-CLI-12")
async def test_a_killed_run_goes_on_where_it_was_settled_and_pays_once(place: Place) -> None:
    script = scripted(
        calls(("pay", '{"amount": 5}')),
        calls(("dawdle", "{}")),
        calls(("dawdle", "{}")),
        text("All paid."),
    )
    async with open_server(script) as server:
        async with place.started(*place.begun(server), DAWDLE="60") as process:
            await read_until(process, "· dawdle")
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        left = await place.only_run()
        assert (left["status"], left["turns"]) == ("ready", 1)
        ended = await place.harness("run", *place.store, "--resume", str(left["run_id"]), *SHORT)
    assert ended.code == 0, ended.err
    assert "All paid." in ended.out
    assert place.effects == ["pay 5", "dawdle", "dawdle"]
    after = await place.only_run()
    assert (after["status"], after["stop_reason"], after["turns"]) == ("finished", "done", 3)


@pytest.mark.rule("R-CLI-10", "R-CLI-15")
async def test_an_effect_that_was_cut_off_is_told_and_settled_by_hand(place: Place) -> None:
    again = calls(("pay_slowly", '{"amount": 7}'))
    async with open_server(scripted(again, again, text("I could not tell."))) as server:
        async with place.started(*place.begun(server)) as process:
            await read_until(process, "· pay_slowly")
            while not place.effects:  # noqa: ASYNC110  # another process makes them
                await trio.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        left = await place.only_run()
        ended = await place.harness("run", *place.store, "--resume", str(left["run_id"]), *SHORT)
    assert ended.code == 0, ended.err
    assert place.effects == ["pay 7"], "it was not paid again"
    told = json.loads(server.requests[-1].body)["messages"][-1]
    assert told["role"] == "tool"
    assert json.loads(told["content"])["kind"] == "interrupted"

    listed = await place.harness("receipts", *place.store)
    assert listed.out.startswith("in doubt  ")
    receipt = listed.out.split("  ", 3)[3].strip()
    settled = await place.harness(
        "receipts", *place.store, "--settle", receipt, "completed", "--result", '"paid 7"'
    )
    assert (settled.code, settled.out) == (0, 'completed: "paid 7"\n'), settled.err
    assert (await place.harness("receipts", *place.store)).out == ""
    again_settled = await place.harness("receipts", *place.store, "--settle", receipt, "failed")
    assert again_settled.code == 2
    assert "is completed, expected one in doubt" in again_settled.err


@pytest.mark.rule("R-CLI-11", "R-CLI-12", "R-CLI-13")
async def test_a_question_is_answered_by_another_process(place: Place) -> None:
    script = scripted(calls(("approve", "{}"), ("pay", '{"amount": 1}')), text("Fine."))
    async with open_server(script) as server:
        asked = await place.begin(server)
        assert asked.code == 3, asked.err
        run_id = run_id_of(asked)
        listed = await place.harness("runs", *place.store)
        assert listed.out.splitlines()[1].split(None, 5) == [
            run_id, "waiting_for_reply", "1", "0", "0.00", "Is it all right?"
        ]  # fmt: skip
        early = await place.harness("run", *place.store, "--resume", run_id)
        assert (early.code, len(server.requests)) == (3, 1)
        assert "expected an answer: harness reply" in early.err

        replied = await place.harness("reply", run_id, "Yes.", *place.store)
        assert (replied.code, replied.out) == (0, f"{run_id}: ready\n"), replied.err
        ended = await place.harness("run", *place.store, "--resume", run_id)
    assert ended.code == 0, ended.err
    messages = json.loads(server.requests[-1].body)["messages"]
    assert [json.loads(each["content"])["data"] for each in messages if each["role"] == "tool"] == [
        "Yes.", "paid 1"
    ]  # fmt: skip
    finished = await place.harness("run", *place.store, "--resume", run_id)
    assert finished.code == 0
    assert "has ended 'done'" in finished.err

    more = await place.harness("reply", run_id, "And now?", *place.store)
    assert more.out == f"{run_id}: ready\n"


@pytest.mark.rule("R-CLI-13")
async def test_a_call_id_may_look_like_anything(place: Place) -> None:
    asked = tool_call_turn([tool_call("approve", id="functions.ask: 0")])
    state = (await run_harness([asked], tools=[approve]).run()).state
    async with open_sqlite_store(place.folder / "runs.db") as store:
        key = RunKey(tenant="default", run_id=state.run_id)
        await store.create_run(key, checkpoint_of(state))
    replied = await place.harness("reply", state.run_id, "Yes.", *place.store)
    assert (replied.code, replied.out) == (0, f"{state.run_id}: ready\n"), replied.err


@pytest.mark.rule("R-CLI-13")
async def test_of_several_questions_one_has_to_be_named(place: Place) -> None:
    script = scripted(calls(("approve", "{}"), ("approve", "{}")), text("Fine."))
    async with open_server(script) as server:
        run_id = run_id_of(await place.begin(server))
    which = await place.harness("reply", run_id, "Yes.", *place.store)
    assert which.code == 2
    assert "expected --call with one" in which.err
    wrong = await place.harness("reply", run_id, "Yes.", "--call", "c7", *place.store)
    assert wrong.code == 2
    one = await place.harness("reply", run_id, "Yes.", "--call", "c1", *place.store)
    assert one.out.splitlines() == [
        f"{run_id}: waiting_for_reply", "  still asks: c0: Is it all right?"
    ]  # fmt: skip


@pytest.mark.rule("R-CLI-14")
async def test_a_fork_has_the_transcript_and_a_budget_of_its_own(place: Place) -> None:
    script = scripted(calls(("pay", '{"amount": 2}')), text("Again."))
    async with open_server(script) as server:
        ended = await place.begin(server, "--max-turns", "1")
        assert ended.code == 5, ended.out
        run_id = run_id_of(ended)
        forked = await place.harness("fork", run_id, *place.store, "--max-turns", "3")
        assert forked.code == 0, forked.err
        fork_id = forked.out.partition(":")[0]
        assert fork_id != run_id
        await place.harness("reply", fork_id, "Go on.", *place.store)
        ended = await place.harness("run", *place.store, "--resume", fork_id)
    assert ended.code == 0, ended.err
    said = [each["role"] for each in json.loads(server.requests[-1].body)["messages"]]
    assert said == ["user", "assistant", "tool", "user"]
    earlier = await place.harness("fork", run_id, *place.store, "--revision", "0")
    assert "ready, forked from" in earlier.out


WRONG: Iterable[tuple[list[str], str]] = [
    (["run", "--resume", "x"], "--resume is 'x', expected --store"),
    (["run", "Go.", "--resume", "x", "--store", "STORE"], "the question is 'Go.'"),
    (["run", "--model", "m"], "the question is None"),
    (["run", "Go."], "there is no --model"),
    (["run", "--resume", "x", "--store", "STORE"], "the store has no run 'x'"),
    (["run", "--resume", "x", "--store", "STORE", "--max-turns", "9"], "--max-turns is 9"),
    (["run", "Go.", "--model", "m", "--store", "NEW", "--tools", "no:x"], "No module named 'no'"),
    (["reply", "x", "Yes.", "--store", "STORE"], "the store has no run 'x'"),
    (["fork", "x", "--store", "STORE"], "the store has no run 'x'"),
    (["receipts", "--store", "STORE", "--settle", "x", "completed"], "--settle has 'x'"),
    (["receipts", "--store", "STORE", "--settle", "[]", "maybe"], "--settle has 'maybe'"),
    (["receipts", "--store", "STORE", "--result", "1"], "expected it with --settle"),
    (
        ["receipts", "--store", "STORE", "--settle", '["t","r","pay","h",0]', "failed"],
        "expected --tenant 'default'",
    ),
    (
        [
            "receipts", "--store", "STORE", "--settle", '["default","r","pay","h",0]', "completed",
            "--result", "{bad",
        ],
        "--result is '{bad', expected JSON",
    ),
]  # fmt: skip


@pytest.mark.rule("R-CLI-01")
@pytest.mark.parametrize(("words", "said"), WRONG)
async def test_a_wrong_use_of_a_store_is_2_and_names_the_offence(
    place: Place, words: list[str], said: str
) -> None:
    paths = {name: str(place.folder / f"{name}.db") for name in ("STORE", "NEW")}
    async with open_sqlite_store(paths["STORE"]):
        pass
    ended = await place.harness(*(paths.get(each, each) for each in words))
    assert ended.code == 2, ended.err
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert "is kept in" not in ended.err


@pytest.mark.rule("R-CLI-16")
@pytest.mark.parametrize("words", [["runs"], ["receipts"], ["fork", "x"], ["run", "--resume", "x"]])
async def test_a_command_that_looks_for_a_store_makes_none(place: Place, words: list[str]) -> None:
    ended = await place.harness(*words, *place.store)
    assert (ended.code, ended.out) == (1, "")
    assert str(place.folder / "runs.db") in ended.err
    assert list(place.folder.iterdir()) == []


@pytest.mark.rule("R-CLI-16")
async def test_what_was_done_is_said_to_stand_when_the_output_is_full(place: Place) -> None:
    async with open_sqlite_store(place.folder / "runs.db") as store:
        await store.create_run(
            RunKey(tenant="default", run_id="r"), create_checkpoint("r", "Hello.")
        )
    with Path("/dev/full").open("w") as full:  # noqa: ASYNC230  # it is no file
        done = await trio.run_process(
            [sys.executable, "-m", "harness", "reply", "r", "More.", *place.store],
            stdout=full,
            capture_stderr=True,
            check=False,
            env=place.environ({}),
            cwd=ROOT,
        )
    assert done.returncode == 1
    assert b"it is done, and could not be printed" in done.stderr
    assert (await place.only_run())["revision"] == 1


@pytest.mark.rule("R-CLI-16")
async def test_an_interrupt_before_anything_runs_is_one_line(place: Place) -> None:
    async with open_sqlite_store(place.folder / "runs.db") as store:
        key = RunKey(tenant="default", run_id="r")
        await store.create_run(key, create_checkpoint("r", "Hello."))
        await store.acquire_run(key, owner="somebody else", seconds=60)
        async with place.started("run", "--resume", "r", *place.store) as process:
            assert process.stderr is not None
            told = b""
            while b"waiting for that\n" not in told:
                told += await process.stderr.receive_some()
            process.send_signal(signal.SIGINT)
            with trio.fail_after(20):
                told += b"".join([each async for each in process.stderr])
    assert process.returncode == 130
    assert told.decode().endswith("harness: interrupted\n")
    assert b"Traceback" not in told


@pytest.mark.rule("R-CLI-10", "R-CLI-11")
async def test_options_that_are_given_again_count_and_a_budget_that_is_used_up_is_said(
    place: Place,
) -> None:
    script = scripted(
        calls(("dawdle", "{}")), calls(("pay", '{"amount": 3}')), text("No more."), text("Fork.")
    )
    async with open_server(script) as server:
        async with place.started(*place.begun(server, "--max-turns", "3"), DAWDLE="60") as process:
            await read_until(process, "· dawdle")
            process.send_signal(signal.SIGKILL)
        run_id = str((await place.only_run())["run_id"])
        ended = await place.harness("run", *place.store, *SHORT, "--resume", run_id, "--tools")
        assert ended.code == 0, ended.err
        assert "✗ pay not_found" in ended.out
        assert place.effects == ["dawdle"]
        said = await place.harness("run", *place.store, "--resume", run_id)
        assert "expected harness reply" in said.err
        forked = await place.harness("fork", run_id, *place.store, "--max-turns", "0")
        fork_id = forked.out.partition(":")[0]
        said = await place.harness("run", *place.store, "--resume", fork_id)
    assert "expected harness fork --max-turns" in said.err


async def test_a_file_that_is_no_store_is_left_alone(place: Place) -> None:
    foreign = place.folder / "letter.txt"
    foreign.write_text("Dear store, " * 1000)
    ended = await place.harness("runs", "--store", str(foreign))
    assert ended.code == 1
    assert str(foreign) in ended.err
    assert foreign.read_text() == "Dear store, " * 1000


async def test_a_run_that_a_process_is_at_is_refused(place: Place) -> None:
    script = scripted(calls(("dawdle", "{}")), text("Done."))
    async with (
        open_server(script) as server,
        place.started(*place.begun(server), DAWDLE="60") as process,
    ):
        await read_until(process, "· dawdle")
        held = await place.only_run()
        assert str(held["owner"]).endswith(str(process.pid))
        ended = await place.harness("run", *place.store, "--resume", str(held["run_id"]), *SHORT)
        assert ended.code == 1
        assert "is held by" in ended.err
        process.kill()
