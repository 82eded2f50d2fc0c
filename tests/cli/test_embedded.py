from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import trio

import harness
from harness._cli import _embedded
from harness._cli._child import LocalModelError
from harness._cli._embedded import SlotWatch, open_embedded


def stand_in(manners: str) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("stand_in_server.py")), manners]


async def test_a_server_that_does_not_start_in_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_embedded, "START_WITHIN", 0.3)
    with pytest.raises(
        LocalModelError, match=r"^the model server did not start, expected it in 0\.3 s$"
    ):
        async with open_embedded(tmp_path / "pid", command=stand_in("silent")):
            raise AssertionError("entered")


async def test_a_slow_body_is_not_cut_by_the_time_for_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_embedded, "START_WITHIN", 5.0)
    async with open_embedded(tmp_path / "pid", command=stand_in("plain")) as endpoint:
        assert trio.current_effective_deadline() == math.inf
        assert not await endpoint.watch.busy()


async def test_a_server_that_closes_what_it_offered_to_keep_is_asked_on_a_new_connection(
    tmp_path: Path,
) -> None:
    async with open_embedded(tmp_path / "pid", command=stand_in("plain")) as endpoint:
        for _ in range(3):
            assert (await harness.run(endpoint.model, "?")).text == "Hello"


@pytest.mark.local_model
async def test_the_embedded_model_is_watched_by_its_servers_slots(model_file: Path) -> None:
    async with open_embedded(model_file) as endpoint:
        assert isinstance(endpoint.watch, SlotWatch)
        assert endpoint.about.startswith("SmolLM2-135M-Instruct on a server of its own (process ")
        assert not await endpoint.watch.busy()
        await endpoint.watch.wait_idle()
