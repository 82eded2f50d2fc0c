from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from harness.tools import DroppedName, Plugin, Rehydration, ToolRegistry, rehydrate_activation
from tests.strategies import names


class Resolver:
    """Answers from a table, a checkpoint each, and notes who was asked for."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[str] = []
        self._answers = answers

    async def __call__(self, name: str) -> bool | str:
        self.asked.append(name)
        await trio.lowlevel.checkpoint()
        answer = self._answers.get(name, True)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]  # whatever a test has put there


def drop(name: str, reason: str) -> DroppedName:
    return DroppedName(name=name, reason=reason)


@pytest.mark.rule("R-REG-09")
async def test_two_old_names_of_one_plugin_resolve_it_once() -> None:
    resolve = Resolver()
    registry: ToolRegistry[Plugin] = ToolRegistry(aliases={"older": "old", "old": "new"})
    found = await rehydrate_activation(
        ["older", "x", "old", "new", "x"],
        canonicalize_name=registry.canonicalize_name,
        resolve=resolve,
    )
    assert resolve.asked == ["new", "x"]
    assert found == Rehydration(active=("new", "x"), dropped=())


@pytest.mark.rule("R-REG-09")
async def test_a_plugin_that_is_dropped_is_dropped_once_under_its_stored_name() -> None:
    registry: ToolRegistry[Plugin] = ToolRegistry(aliases={"old": "new", "older": "new"})
    found = await rehydrate_activation(
        ["older", "old"],
        canonicalize_name=registry.canonicalize_name,
        resolve=Resolver(new="unknown"),
    )
    assert found == Rehydration(dropped=(drop("older", "unknown"),))


@pytest.mark.rule("R-REG-09")
@pytest.mark.parametrize("stored", [None, 3, ["a"], {"a": 1}, "x" * 0])
async def test_a_stored_value_that_is_no_name_is_dropped(stored: object) -> None:
    found = await rehydrate_activation(
        [stored, "ok"], canonicalize_name=str, resolve=Resolver(**{"": "unknown"})
    )
    assert found.active == ("ok",)
    assert [each.reason for each in found.dropped] == ["unknown"]


@pytest.mark.rule("R-REG-10")
async def test_each_reason_is_kept_and_so_is_the_order() -> None:
    resolve = Resolver(
        a="unknown", c="unavailable", d="unreachable", f="needs a login", g=False
    )  # fmt: skip
    found = await rehydrate_activation("abcdefg", canonicalize_name=str, resolve=resolve)
    assert found.active == ("b", "e")
    assert found.dropped == (
        drop("a", "unknown"),
        drop("c", "unavailable"),
        drop("d", "unreachable"),
        drop("f", "needs a login"),
        drop("g", "unavailable"),
    )


@pytest.mark.rule("R-REG-11")
@pytest.mark.parametrize("error", [OSError("down"), ExceptionGroup("two", [KeyError("x")])])
async def test_what_a_resolver_raises_makes_its_plugin_unreachable(error: Exception) -> None:
    resolve = Resolver(b=error)
    found = await rehydrate_activation("abc", canonicalize_name=str, resolve=resolve)
    assert resolve.asked == ["a", "b", "c"]
    assert found == Rehydration(active=("a", "c"), dropped=(drop("b", "unreachable"),))


@pytest.mark.rule("R-REG-11")
async def test_a_cancellation_passes_through_and_nothing_more_is_resolved() -> None:
    resolve = Resolver()
    with trio.CancelScope() as scope:
        scope.cancel()
        await rehydrate_activation("abc", canonicalize_name=str, resolve=resolve)
    assert scope.cancelled_caught
    assert resolve.asked == ["a"]


@pytest.mark.rule("R-REG-11")
async def test_plugins_are_resolved_one_after_the_other() -> None:
    inside = 0

    async def resolve(name: str) -> bool:
        nonlocal inside
        inside += 1
        assert inside == 1
        await trio.lowlevel.checkpoint()
        inside -= 1
        return True

    await rehydrate_activation("abc", canonicalize_name=str, resolve=resolve)


@pytest.mark.parametrize("answer", [None, 3, "", 1])
async def test_an_answer_that_is_none_is_the_hosts_bug(answer: object) -> None:
    text = r"^resolve\('a'\) answered .*, expected True or a reason$"
    with pytest.raises(TypeError, match=text):
        await rehydrate_activation("a", canonicalize_name=str, resolve=Resolver(a=answer))


@pytest.mark.rule("R-REG-09", "R-REG-11")
@given(st.lists(names), st.sets(names))
def test_every_name_is_live_or_dropped_in_order(stored: list[str], gone: set[str]) -> None:
    async def main() -> Rehydration:
        resolve = Resolver(**dict.fromkeys(gone, "unknown"))
        return await rehydrate_activation(stored, canonicalize_name=str, resolve=resolve)

    found = trio.run(main)
    once = list(dict.fromkeys(stored))
    assert list(found.active) == [name for name in once if name not in gone]
    assert [each.name for each in found.dropped] == [name for name in once if name in gone]
