import re

from harness._ids import counting_ids, random_id


def test_random_ids_start_with_their_prefix_and_differ() -> None:
    ids = [random_id("run") for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(re.fullmatch(r"run_[0-9a-f]{32}", each) for each in ids)


def test_a_call_id_of_ours_is_short_enough_for_every_provider() -> None:
    assert len(random_id("call")) <= 40


def test_counted_ids_count_over_all_prefixes_and_each_source_by_itself() -> None:
    ids, others = counting_ids(), counting_ids()
    assert [ids("run"), ids("turn"), ids("run")] == ["run_1", "turn_2", "run_3"]
    assert others("run") == "run_1"
