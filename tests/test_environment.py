"""The environments of the make targets: current means current."""

import json
import sys
from pathlib import Path

import pytest

from scripts import environment


class Project:
    """A project file and a place for an environment, with an installer that only counts."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pyproject.toml"
        self.file.write_text("[project]\n", "utf-8")
        self.environment = folder / "env"
        self.installed: list[list[str]] = []

    def install(self, directory: Path, extras: list[str]) -> None:
        directory.mkdir()
        self.installed.append(extras)

    def ensure(self, *extras: str, directory: Path | None = None) -> bool:
        return environment.ensure(
            directory or self.environment,
            list(extras),
            project=self.file,
            install=self.install,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose environment with the extra ``test`` is finished."""
    project = Project(tmp_path)
    assert project.ensure("test")
    return project


def test_a_finished_environment_is_kept(project: Project) -> None:
    assert not project.ensure("test")
    assert project.installed == [["test"]]


def test_other_extras_make_it_anew(project: Project) -> None:
    assert project.ensure("test", "http")
    assert project.installed[-1] == ["test", "http"]


def test_another_python_makes_it_anew(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version", "3.99")
    assert project.ensure("test")


def test_a_changed_project_file_makes_it_anew(project: Project) -> None:
    project.file.write_text("[project]\nname = 'other'\n", "utf-8")
    assert project.ensure("test")


def test_a_moved_environment_is_made_anew(project: Project) -> None:
    moved = project.environment.rename(project.environment.with_name("elsewhere"))
    assert project.ensure("test", directory=moved)


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"project": "x"})])
def test_a_damaged_stamp_is_no_stamp(project: Project, text: str) -> None:
    project.environment.joinpath(environment.STAMP).write_text(text, "utf-8")
    assert project.ensure("test")


def test_remains_of_an_earlier_environment_are_removed(project: Project) -> None:
    leftover = project.environment / "leftover"
    leftover.touch()
    assert project.ensure("test", "http")
    assert not leftover.exists()


def test_an_interrupted_install_is_begun_again(project: Project) -> None:
    def interrupted(directory: Path, extras: list[str]) -> None:
        directory.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        environment.ensure(project.environment, [], project=project.file, install=interrupted)
    assert project.ensure()
