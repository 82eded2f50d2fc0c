"""Checkpoints and commits as values."""

import copy

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import Message, user_message
from harness.checkpoints import Checkpoint, Commit, create_checkpoint
from tests.checkpoints.examples import napping, waiting

transcripts = st.lists(st.sampled_from("abc"), max_size=6).map(
    lambda words: tuple(user_message(word) for word in words)
)


def with_messages(checkpoint: Checkpoint, messages: tuple[Message, ...]) -> Checkpoint:
    head = attrs.evolve(checkpoint.head, revision=checkpoint.revision + 1)
    return Checkpoint(head=head, messages=messages)


@given(transcripts, transcripts)
def test_a_checkpoint_and_the_commit_to_the_next_make_the_next(
    before: tuple[Message, ...], after: tuple[Message, ...]
) -> None:
    one = with_messages(create_checkpoint("r", "Go."), before)
    other = with_messages(one, after)
    commit = one.commit_to(other)
    assert one.after(commit) == other
    assert commit.keep + len(commit.tail) == len(after)
    longer_keep = commit.keep + 1
    assert before[:longer_keep] != after[:longer_keep] or commit.keep in (len(before), len(after))


def test_what_a_commit_makes_shares_nothing_with_it() -> None:
    one = create_checkpoint("r", "Go.")
    commit = Commit(head=one.head, keep=1, tail=(user_message("More."),))
    after = one.after(commit)
    before = copy.deepcopy(after)
    commit.tail[0]["content"] = "changed"
    assert after == before


@pytest.mark.rule("R-CKPT-02")
def test_the_calls_without_a_result_are_those_of_the_pause() -> None:
    assert waiting().head.open_call_ids == ("pay",)
    assert napping().head.open_call_ids == ()
    assert create_checkpoint("r", "Go.").head.open_call_ids == ()
