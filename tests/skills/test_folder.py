import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.skills import (
    YAML,
    BrokenSkill,
    FoundSkill,
    FoundSkills,
    ResourceRefused,
    Skill,
    pyyaml,
    read_skills,
)
from tests.skills.examples import link, skill, write_skill


def names(found: FoundSkills) -> list[str]:
    return [each.skill.name for each in found.skills]


def reasons(found: FoundSkills, root: Path) -> dict[str, str]:
    return {os.path.relpath(each.path, root): each.reason for each in found.broken}


def test_skills_side_by_side_are_found_by_name(tmp_path: Path) -> None:
    write_skill(tmp_path, "waves")
    write_skill(
        tmp_path,
        "pdf",
        text=(
            "---\nname: pdf\ndescription: Use this for: PDF files.\n"
            "license: Proprietary. LICENSE.txt has complete terms\n---\n\n# PDF\n\nSee forms.md.\n"
        ),
        files={"forms.md": "Forms.", "scripts/fill.py": "x", "LICENSE.txt": "x", ".git/x": "x"},
    )
    (tmp_path / "README.md").write_text("# Not a skill\n")
    found = read_skills(tmp_path)
    assert found.broken == ()
    assert names(found) == ["pdf", "waves"]
    assert found.skills[0] == FoundSkill(
        skill=Skill(
            name="pdf",
            description="Use this for: PDF files.",
            body="# PDF\n\nSee forms.md.",
            metadata={"license": "Proprietary. LICENSE.txt has complete terms"},
        ),
        folder=str(tmp_path / "pdf"),
        resources=("LICENSE.txt", "forms.md", "scripts/fill.py"),
        warnings=("a value with a colon was not quoted, and was read as if it were",),
    )
    assert found.get("platform:pdf") is found.skills[0]
    assert found.get("pdf") is None


def test_the_folder_may_be_a_skill_have_subfolders_or_hold_links(tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    write_skill(skills / "writing" / "long", "novels")
    write_skill(skills / ".hidden", "no")
    write_skill(skills / "node_modules", "nor-this")
    write_skill(skills / "a" / "b" / "c", "too-deep")
    inner = write_skill(skills, "waves")
    write_skill(inner, "within-a-skill")
    elsewhere = write_skill(tmp_path / "elsewhere", "linked")
    link(elsewhere, skills / "linked")
    assert names(read_skills(skills)) == ["linked", "novels", "waves"]
    assert names(read_skills(inner)) == ["waves"]
    assert names(read_skills(os.fspath(skills / ".hidden"))) == ["no"]
    assert read_skills(skills).skills[0].folder == str(elsewhere)


def test_a_link_to_anything_but_a_skill_is_not_entered(tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    write_skill(tmp_path / "elsewhere", "not-looked-for")
    write_skill(skills / "group", "tides")
    link("/", skills / "all")
    link(tmp_path / "elsewhere", skills / "more")
    link(skills, skills / "again")
    link(skills / "circle", skills / "circle")
    link(tmp_path / "elsewhere" / "not-looked-for", skills / "group" / "linked")
    before = time.monotonic()
    assert names(read_skills(skills)) == ["tides"]
    assert time.monotonic() - before < 5


def test_a_skill_file_in_lower_case_is_one_too(tmp_path: Path) -> None:
    folder = write_skill(tmp_path, "tides")
    (folder / "SKILL.md").rename(folder / "skill.md")
    found = read_skills(tmp_path)
    assert (names(found), found.skills[0].resources) == (["tides"], ())


def test_broken_skills_are_reported_and_the_good_ones_load(tmp_path: Path) -> None:
    write_skill(tmp_path, "good")
    write_skill(tmp_path, "none", text="# No frontmatter\n")
    write_skill(tmp_path, "bad", text="---\n{\n---\n")
    write_skill(tmp_path, "empty", text="---\ndescription: d\n---\n \n")
    (write_skill(tmp_path, "binary") / "SKILL.md").write_bytes(b"\x7fELF\xff\x00")
    (write_skill(tmp_path, "large") / "SKILL.md").write_bytes(b"x" * 10_000_000)
    (tmp_path / "a-folder" / "SKILL.md").mkdir(parents=True)
    (tmp_path / "a-pipe").mkdir()
    os.mkfifo(tmp_path / "a-pipe" / "SKILL.md")
    link("/etc/passwd", tmp_path / "a-link" / "SKILL.md")
    found = read_skills(tmp_path)
    assert names(found) == ["good"]
    assert reasons(found, tmp_path) == {
        "a-folder/SKILL.md": "it is a folder, expected a file",
        "a-link/SKILL.md": "it leads out of the skill's folder by a link",
        "a-pipe/SKILL.md": "it is no regular file",
        "bad/SKILL.md": (
            "its frontmatter cannot be read: while parsing a flow node expected the node content, "
            "but found '<stream end>' in \"<unicode string>\", line 2, column 1: ^"
        ),
        "binary/SKILL.md": "it is no text in UTF-8: invalid start byte at byte 4",
        "empty/SKILL.md": "it says nothing after its frontmatter",
        "large/SKILL.md": "it is larger than may be read",
        "none/SKILL.md": (
            "it does not begin with a line '---', expected a frontmatter with a description"
        ),
    }
    assert [each.path for each in found.broken] == sorted(each.path for each in found.broken)


def test_of_two_skills_with_one_name_that_of_the_first_folder_counts(tmp_path: Path) -> None:
    project, mine = tmp_path / "z-project", tmp_path / "mine"
    write_skill(project, "tides")
    write_skill(mine, "tides")
    write_skill(mine, "waves")
    found = read_skills(project, mine)
    assert names(found) == ["tides", "waves"]
    assert found.skills[0].folder == str(project / "tides")
    assert found.broken == (
        BrokenSkill(
            path=str(mine / "tides"),
            reason=f"the skill in '{project / 'tides'}' is called 'tides' too",
        ),
    )


def test_a_name_that_is_not_its_folders_is_told(tmp_path: Path) -> None:
    write_skill(tmp_path, "Folder", text="---\nname: tides\ndescription: d\n---\nx")
    write_skill(tmp_path, "My Skill", text="---\ndescription: d\n---\nx")
    found = read_skills(tmp_path)
    assert [(each.skill.name, each.warnings) for each in found.skills] == [
        (
            "my-skill",
            (
                "name is None, expected lower-case words; it is called 'my-skill'",
                "it is called 'my-skill', and its folder 'My Skill'",
            ),
        ),
        ("tides", ("it is called 'tides', and its folder 'Folder'",)),
    ]


def test_a_folder_that_is_not_there_is_the_callers_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError, match="none"):
        read_skills(tmp_path / "none")
    with pytest.raises(NotADirectoryError, match="file"):
        read_skills(tmp_path / "file")
    assert read_skills(tmp_path) == read_skills() == FoundSkills()


def test_the_yaml_can_be_the_hosts(tmp_path: Path) -> None:
    write_skill(tmp_path, "tides")
    yaml = YAML(load=lambda text: {"name": "x", "description": "d"}, dump=str)
    assert names(read_skills(tmp_path, yaml=yaml)) == ["x"]


def test_of_many_resources_the_first_are_listed(tmp_path: Path) -> None:
    many = {f"d{n // 20}/f{n:03}.txt": "x" for n in range(130)}
    write_skill(tmp_path, "tides", files={"a/b/c/d/e": "deep", "a/b/c/x": "x", **many})
    link("d0/f000.txt", tmp_path / "tides" / "a" / "l")
    (found,) = read_skills(tmp_path).skills
    assert found.resources[0] == "a/b/c/x"
    assert len(found.resources) == 100
    assert found.more_resources
    assert found.resources == tuple(sorted(found.resources))
    assert not {"a/l", "a/b/c/d/e"} & {*found.resources}


def test_there_is_an_end_to_looking(tmp_path: Path) -> None:
    for number in range(5_001):
        (tmp_path / f"f{number}").mkdir()
    write_skill(tmp_path, "z")
    found = read_skills(tmp_path)
    assert found.skills == ()
    assert reasons(found, tmp_path) == {
        ".": "it has more than 5000 folders; the others were not looked at"
    }


def test_a_folder_that_goes_away_meanwhile_is_broken(tmp_path: Path) -> None:
    write_skill(tmp_path, "a")
    (tmp_path / "b").mkdir()

    def load(text: str) -> object:
        (tmp_path / "b").rmdir()
        return {"name": "a", "description": "d"}

    found = read_skills(tmp_path, yaml=YAML(load=load, dump=str))
    assert names(found) == ["a"]
    assert reasons(found, tmp_path) == {"b": "it cannot be read: No such file or directory"}


def test_a_file_that_the_system_cannot_open_is_broken(tmp_path: Path) -> None:
    write_skill(tmp_path, "tides")
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    yaml = pyyaml()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))  # room for one more
    try:
        found = read_skills(tmp_path, yaml=yaml)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert reasons(found, tmp_path) == {"tides/SKILL.md": "it cannot be read: Too many open files"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_broken(tmp_path: Path) -> None:
    write_skill(tmp_path, "tides")
    os.chmod(write_skill(tmp_path, "closed"), 0)
    found = read_skills(tmp_path)
    assert names(found) == ["tides"]
    assert reasons(found, tmp_path) == {"closed": "it cannot be read: Permission denied"}


@pytest.mark.rule("R-SKILL-31")
def test_a_resource_is_read_by_its_ref_and_path(tmp_path: Path) -> None:
    write_skill(tmp_path, "tides", files={"ref/table.md": "Low", "x.bin": b"\xff\x00"})
    (tmp_path / "secret").write_text("secret")
    link("../secret", tmp_path / "tides" / "out")
    link("/dev/zero", tmp_path / "tides" / "zero")
    with open(tmp_path / "tides" / "huge", "wb") as huge:
        huge.truncate(1024**3)
    found = read_skills(tmp_path)
    ref = "platform:tides"
    assert found.read_resource(ref, "ref/table.md") == b"Low"
    assert found.read_resource(ref, "x.bin") == b"\xff\x00"
    for path, kind, text in [
        ("../secret", "authz", "it goes up with '..', expected one below the skill's folder"),
        (str(tmp_path / "secret"), "authz", "it is absolute, expected one from the skill's fo"),
        ("out", "authz", "it leads out of the skill's folder by a link"),
        ("zero", "authz", "it leads out of the skill's folder by a link"),
        ("huge", "authz", "it is larger than may be read"),
        ("ref", "not_found", "it is a folder, expected a file; the skill has huge, ref/table.md,"),
        ("REF.md", "not_found", "there is no such file; the skill has huge, ref/table.md, x.bin"),
    ]:
        refused = found.read_resource(ref, path)
        assert isinstance(refused, ResourceRefused)
        assert refused.kind == kind
        assert refused.reason.startswith(f"the path {path!r:.200} was refused: {text}")
    assert found.read_resource(ref, "ref/table.md", most=2) == ResourceRefused(
        kind="authz", reason="the path 'ref/table.md' was refused: it is larger than may be read"
    )
    assert found.read_resource("tides", "x") == ResourceRefused(
        kind="not_found", reason="there is no skill 'tides'"
    )
    without = FoundSkills(skills=(FoundSkill(skill=skill()),))
    assert without.read_resource(ref, "x") == ResourceRefused(
        kind="not_found", reason="there is no folder of the skill 'platform:tides'"
    )


def test_a_refusal_lists_twenty_resources_at_most(tmp_path: Path) -> None:
    write_skill(tmp_path, "tides", files={f"{n:03}.md": "x" for n in range(30)})
    refused = read_skills(tmp_path).read_resource("platform:tides", "x" * 4_000)
    assert isinstance(refused, ResourceRefused)
    assert refused.reason.endswith("018.md, 019.md and others")
    assert len(refused.reason) < 600


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.binary(max_size=300))
def test_random_files_are_read_or_reported(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "tides"
    folder.mkdir(exist_ok=True)
    (folder / "SKILL.md").write_bytes(b"---\ndescription: d\n" + content)
    found = read_skills(tmp_path)
    assert len(found.skills) + len(found.broken) == 1


def test_what_is_found_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    for name in ("waves", "tides", "charts"):
        write_skill(tmp_path, name, files={f"{n}.md": "x" for n in range(5)})
    program = (
        "import sys, harness.skills as s; found = s.read_skills(sys.argv[1]); print(found);"
        "print(s.with_skills([], found).definitions());"
        "print([s.serialize_skill_markdown(e.skill, s.pyyaml()) for e in found.skills])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
