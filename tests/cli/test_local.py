from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import trio

from harness._cli import _child
from harness._cli._child import LocalModelError
from harness._cli._local import MODEL_NAME, LocalServer, open_local_server
from harness._errors import MissingExtraError

HERE = Path(__file__).parent
HOLD = """
import sys, trio
from pathlib import Path
from harness._cli._local import open_local_server

async def main():
    async with open_local_server(Path(sys.argv[1]), command=sys.argv[2:] or None) as server:
        print(server.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""
MESSAGES = [{"role": "user", "content": "Which town has the lighthouse?"}]
QUESTION = {
    "model": MODEL_NAME,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "search",
                "description": "Find a word.",
                "parameters": {
                    "type": "object",
                    "properties": {"word": {"type": "string", "maxLength": 20}},
                    "required": ["word"],
                },
            },
        }
    ],
    # Without these two the model may talk until it is cut off.
    "max_tokens": 200,
    "temperature": 0,
}


def stand_in(manners: str) -> list[str]:
    return [sys.executable, str(HERE / "stand_in_server.py"), manners]


async def the_pid(file: Path) -> int:
    path = trio.Path(file)
    with trio.fail_after(10):
        while True:
            if await path.exists():
                return int(await path.read_text())
            await trio.sleep(0.01)


class OopsError(Exception):
    pass


async def test_the_server_is_healthy_and_shows_its_slots(
    tmp_path: Path, gone: Callable[..., bool]
) -> None:
    async with open_local_server(tmp_path / "pid", command=stand_in("plain")) as server:
        assert server.pid == await the_pid(tmp_path / "pid")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", server.base_url)
        assert await server.slots() == (False, False)
    assert gone(server.pid)


async def test_a_server_that_still_loads_is_waited_for(tmp_path: Path) -> None:
    async with open_local_server(tmp_path / "pid", command=stand_in("loading")) as server:
        assert await server.slots() == (False, False)


async def test_the_users_proxy_is_not_asked_for_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with trio.fail_after(10):
        async with open_local_server(tmp_path / "pid", command=stand_in("plain")) as server:
            assert await server.slots() == (False, False)


async def test_wait_idle_returns_once_no_slot_works(tmp_path: Path) -> None:
    async with open_local_server(tmp_path / "pid", command=stand_in("busy")) as server:
        assert await server.slots() == (True, False)
        with trio.fail_after(10):
            await server.wait_idle()
        assert await server.slots() == (False, False)


async def test_a_server_without_slots_says_so(tmp_path: Path) -> None:
    async with open_local_server(tmp_path / "pid", command=stand_in("no-slots")) as server:
        with pytest.raises(LocalModelError, match=r"^the model server has no slots to show: .*501"):
            await server.slots()


async def test_a_server_that_ends_at_once_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(LocalModelError) as caught:
        async with open_local_server(tmp_path / "pid", command=stand_in("broken")):
            raise AssertionError("entered")
    assert caught.value.reason == (
        "the model server ended with status 1, expected it to become healthy"
    )
    assert caught.value.lines == ("cannot open the model", "no such tensor")


async def test_a_server_that_ends_before_it_is_healthy_is_an_error(tmp_path: Path) -> None:
    with trio.fail_after(20), pytest.raises(LocalModelError) as caught:
        async with open_local_server(tmp_path / "pid", command=stand_in("leaving")):
            raise AssertionError("entered")
    assert caught.value.lines == ("changed my mind",)


async def test_waiting_for_the_server_is_bounded_by_the_callers_scope(
    tmp_path: Path, gone: Callable[..., bool]
) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_when_it_is_up() -> None:
                await the_pid(tmp_path / "pid")
                scope.cancel()

            nursery.start_soon(cancel_when_it_is_up)
            async with open_local_server(tmp_path / "pid", command=stand_in("silent")):
                raise AssertionError("entered")
    assert scope.cancelled_caught
    assert gone(await the_pid(tmp_path / "pid"))


@pytest.mark.parametrize("manners", ["plain", "stubborn"])
@pytest.mark.parametrize("way", ["normal", "error", "cancelled", "left while cancelled"])
async def test_the_server_is_gone_on_every_way_out(
    tmp_path: Path,
    gone: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    manners: str,
    way: str,
) -> None:
    monkeypatch.setattr(_child, "STOP_GRACE", 0.1)
    await leave(tmp_path / "pid", stand_in(manners), way)
    assert gone(await the_pid(tmp_path / "pid"))


async def leave(model: Path, command: list[str] | None, way: str) -> int:
    """Open a server, leave its block in the given way, and return the process that it had."""
    server: LocalServer | None = None
    error = OopsError() if way == "error" else None
    with trio.CancelScope() as scope, expected(error):
        async with open_local_server(model, command=command) as server:
            if error is not None:
                raise error
            if way in {"cancelled", "left while cancelled"}:
                scope.cancel()
            if way == "cancelled":
                await trio.sleep_forever()
    assert server is not None
    return server.pid


@contextmanager
def expected(error: OopsError | None) -> Iterator[None]:
    """Let *error* arrive here, as the same object, or nothing."""
    if error is None:
        yield
        return
    with pytest.raises(OopsError) as caught:
        yield
    assert caught.value is error


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_is_gone_when_its_owner_is_ended(
    tmp_path: Path, gone: Callable[..., bool], signum: signal.Signals
) -> None:
    end_the_owner([str(tmp_path / "pid"), *stand_in("plain")], signum, gone)


def end_the_owner(arguments: list[str], signum: signal.Signals, gone: Callable[..., bool]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        if signum is signal.SIGINT:
            # A terminal's Ctrl-C: the whole group gets it, the server too.
            os.killpg(owner.pid, signum)
        else:
            owner.send_signal(signum)
        _, said = owner.communicate(timeout=20)
        assert owner.returncode == -signum, said
    assert gone(pid, within=5.0)


async def test_a_missing_server_package_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"trio-harness\[local\]"):
        async with open_local_server(tmp_path / "model"):
            raise AssertionError("entered")


def test_a_missing_http_client_names_its_extra() -> None:
    program = "import sys; sys.modules['httpx2'] = None; import harness._cli._local"
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "MissingExtraError: 'httpx2' is not installed" in run.stderr
    assert "trio-harness[local]" in run.stderr


@pytest.mark.local_model
@pytest.mark.parametrize("way", ["normal", "cancelled"])
async def test_the_real_server_is_gone_on_every_way_out(
    model_file: Path, gone: Callable[..., bool], way: str
) -> None:
    assert gone(await leave(model_file, None, way))


@pytest.mark.local_model
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_the_real_server_is_gone_when_its_owner_is_ended(
    model_file: Path, gone: Callable[..., bool], signum: signal.Signals
) -> None:
    end_the_owner([str(model_file)], signum, gone)


@pytest.mark.local_model
async def test_the_real_server_leaves_ctrl_c_to_its_owner(model_file: Path) -> None:
    async with open_local_server(model_file) as server:
        os.kill(server.pid, signal.SIGINT)
        # As long as the signal would need to end it.
        await trio.sleep(0.3)
        assert await server.slots() == (False, False)


@pytest.mark.local_model
async def test_the_real_server_refuses_a_file_that_is_no_model(tmp_path: Path) -> None:
    model = tmp_path / "no.gguf"
    model.write_bytes(b"not a model")
    with pytest.raises(LocalModelError) as caught:
        async with open_local_server(model):
            raise AssertionError("entered")
    assert any("failed to load model" in line for line in caught.value.lines)


@pytest.mark.local_model
async def test_the_real_model_calls_a_required_tool_and_then_answers(model_file: Path) -> None:
    async with (
        open_local_server(model_file) as server,
        httpx2.AsyncClient(base_url=server.base_url, trust_env=False, timeout=60) as client,
    ):
        asked = await client.post(
            "/chat/completions", json={**QUESTION, "messages": MESSAGES, "tool_choice": "required"}
        )
        choice = asked.json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        call = choice["message"]["tool_calls"][0]
        assert call["function"]["name"] == "search"
        assert list(json.loads(call["function"]["arguments"])) == ["word"]

        result = {"role": "tool", "tool_call_id": call["id"], "content": "Holm has a lighthouse."}
        message = {**choice["message"], "tool_calls": [call]}
        answered = await client.post(
            "/chat/completions",
            json={
                **QUESTION,
                "tool_choice": "none",
                "messages": [*MESSAGES, message, result],
            },
        )
        choice = answered.json()["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert choice["message"]["content"].strip()
        assert not choice["message"].get("tool_calls")


@pytest.mark.local_model
async def test_closing_a_stream_frees_the_real_servers_slot(model_file: Path) -> None:
    story = [{"role": "user", "content": "Tell a very long story about the sea."}]
    body = {"model": MODEL_NAME, "messages": story, "stream": True, "max_tokens": 3000}
    async with (
        open_local_server(model_file) as server,
        httpx2.AsyncClient(base_url=server.base_url, trust_env=False, timeout=60) as client,
    ):
        async with trio.open_nursery() as nursery:
            streaming = trio.Event()

            async def read() -> None:
                async with client.stream("POST", "/chat/completions", json=body) as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            streaming.set()

            nursery.start_soon(read)
            await streaming.wait()
            assert any(await server.slots())
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await server.wait_idle()
