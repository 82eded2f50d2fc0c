"""Trails: what is written is read, in the order of time, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

from tests.torture.trail import Created, Effect, Record, Struck, Trail, read_effects, read_trails


def written(folder: Path, worker: str, *records: Record) -> None:
    trail = Trail(folder, worker)
    for record in records:
        trail.write(record)
    trail.close()


def test_the_records_of_all_files_come_in_the_order_of_time(tmp_path: Path) -> None:
    first, second, third = (Created(worker="w", at=at, run_id=f"run-{at}") for at in (1, 2, 3))
    written(tmp_path, "one", first, third)
    written(tmp_path, "other", second)
    assert read_trails(tmp_path) == [first, second, third]


def test_a_process_goes_on_where_another_one_of_its_name_has_stopped(tmp_path: Path) -> None:
    one, other = (Created(worker="w", at=at, run_id="run") for at in (1, 2))
    written(tmp_path, "name", one)
    written(tmp_path, "name", other)
    assert read_trails(tmp_path) == [one, other]


def test_a_last_line_that_was_cut_never_was(tmp_path: Path) -> None:
    whole = Struck(worker="driver", at=1, blow="kill", victim="w")
    written(tmp_path, "one", whole)
    with (tmp_path / "one.trail").open("ab") as file:
        file.write(b'{"type":"Created","worker":"w","at":2,"run_')
    assert read_trails(tmp_path) == [whole]


def test_the_effects_of_a_file_that_is_not_there_are_none(tmp_path: Path) -> None:
    effect = Effect(
        worker="w", run_id="r", tool="pay", item="a", part=0, token="t", receipt="", attempt=0
    )
    written(tmp_path, "one", Created(worker="w", run_id="r"), effect)
    assert read_effects(tmp_path / "one.trail") == [effect]
    assert read_effects(tmp_path / "other.trail") == []


def test_times_are_of_one_clock_and_never_go_back(tmp_path: Path) -> None:
    records = [Created(worker="w", run_id="r") for _ in range(3)]
    assert [each.at for each in records] == sorted(each.at for each in records)
