"""A transcript that a dead process and another framework left behind, mended and gone on with."""

import harness
from harness.testing import final_answer, run_virtual, scripted_model
from harness.transcript import heal_messages

stored = [
    {"role": "human", "content": "Book me a room, and a table for two."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "functions.book_room:0",
                "type": "function",
                "function": {"name": "book_room", "arguments": {"nights": 2}},
            },
            {
                "id": "functions.book_table:1",
                "type": "function",
                "function": {"name": "book_table", "arguments": '{"guests": 2'},
            },
        ],
    },
    {"role": "system", "content": "The server will restart soon."},
    {"role": "tool", "tool_call_id": "functions.book_room:0", "content": {"room": 12}},
]

healed = heal_messages(stored)
for issue in healed.issues:
    print(f"message {issue.index}: {issue.code}")
print()
for message in healed.messages:
    print(f"{message['role']:9} {message.get('content')}")


async def main() -> None:
    model = scripted_model([final_answer("Room 12 is yours. I will see about the table.")])
    result = await harness.run(model, healed.messages)
    print(f"\n{result.text}")


run_virtual(main)
