"""A folder of skills, and a run that loads one and reads what it refers to."""

import json
import tempfile
from pathlib import Path

import trio

import harness
from harness.skills import read_skills, with_skills
from harness.testing import final_answer, scripted_model, tool_call, tool_call_turn

# Stands in for a folder that you have, such as ``.claude/skills``.
FILES = {
    "tides/SKILL.md": (
        "---\nname: tides\ndescription: Tells when the water is low.\n---\n\n"
        "Look it up in references/table.md; add an hour in summer.\n"
    ),
    "tides/references/table.md": "Low water: 11:40.\n",
    "boats/SKILL.md": "---\nname: boats\n---\n\nNobody wrote what this is for.\n",
}

model = scripted_model(
    [
        tool_call_turn([tool_call("load_skill", '{"name": "tides"}')]),
        tool_call_turn(
            [
                tool_call("read_skill_resource", json.dumps({"skill": "tides", "path": path}))
                for path in ("references/table.md", "../../etc/passwd")
            ]
        ),
        final_answer("At 12:40."),
    ]
)


async def main(folder: Path) -> None:
    skills = read_skills(folder)
    for broken in skills.broken:
        print(f"{Path(broken.path).relative_to(folder)}: {broken.reason}")
    toolset = with_skills([], skills)
    result = await harness.run(model, "When is low water?", tools=toolset)
    for message in result.state.messages:
        print(f"{message['role']}: {message['content'] or '(calls tools)'}")


with tempfile.TemporaryDirectory() as scratch:
    for path, text in FILES.items():
        file = Path(scratch, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    trio.run(main, Path(scratch))
