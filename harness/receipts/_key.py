"""Which call it is: by its content, and not by its place.

A turn that is made again after a crash may order its calls differently, and ids are new every
time. A receipt found by place or by id would answer one call with the result of another; found
by content, it is at worst not found, and then the call is run, as any new one.

So the key is the tenant, the run, the tool and a hash of the arguments. The tenant is a part of
it so that receipts can be split and moved by tenant, and tenants who share a store cannot meet.
The occurrence tells a call that is made twice on purpose from one that is made again: see
`_occurrences`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness._durable import ReceiptKey
from harness._json import JSON, decode, digest, encode_text

__all__ = ["receipt_key_from", "receipt_key_string", "tool_call_args_hash", "tool_key_name"]

_LONGEST_NAME: Final = 200
"""No provider takes a name of a tool that is nearly as long."""


def receipt_key_string(key: ReceiptKey) -> str:
    """Return *key* as one line of text; two keys have the same text only if they are equal.

    It is a JSON array, so that no separator can be forged: tenant, run, tool, hash, occurrence.
    """
    return encode_text([key.tenant, key.run_id, key.tool, key.args_hash, key.occurrence])


def receipt_key_from(text: str) -> ReceiptKey:
    """Return the key that `receipt_key_string` made *text* of.

    Raises:
        ValueError: it is not such a text.
        TypeError: its occurrence is no integer.
    """
    match decode(text):
        case [str(tenant), str(run_id), str(tool), str(args_hash), occurrence]:
            return ReceiptKey(
                tenant=tenant,
                run_id=run_id,
                tool=tool,
                args_hash=args_hash,
                occurrence=occurrence,  # type: ignore[arg-type]  # checked where it enters
            )
    raise ValueError(
        f"the key of a receipt is {text!r}, expected an array of the tenant, run, tool and hash, "
        "and a number"
    )


def tool_call_args_hash(args: JSON, hash_text: Callable[[bytes], str] | None = None) -> str:
    """Return the hash of a call's arguments: of their canonical text, SHA-256 in hex by default.

    *args* are the arguments as the model sent them, in their normal form if the tool has one,
    and before its schema makes other types of them: what is hashed is what was asked for, and a
    schema that changes must not change which call it was.

    Raises:
        NotJSONError: *args* hold what JSON cannot carry without loss. Two calls that came out as
            one text would be one receipt, and the second would look as if it had been done.
    """
    return digest(args, hash_text)


def tool_key_name(name: str) -> str:
    """Return *name* as a key has it: as it is, or a hash of it if no tool could be called so.

    A model can make up any name, and a store would choke on some.
    """
    if 0 < len(name) <= _LONGEST_NAME and name.isprintable():
        return name
    return f"?{digest(repr(name))}"
