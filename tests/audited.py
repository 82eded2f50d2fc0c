"""``audited.py FOLDER CALLABLE MODULE...``: import modules, make one call, and watch FOLDER's code.

Prints, as a JSON list, each audit event about files, sockets or processes that a frame of FOLDER
caused. Reading the modules themselves is the import system's doing, and what a third-party package
does while it is imported is its own: so from the place of the event outwards, whichever comes
first decides, a frame of FOLDER or one of the import system. CALLABLE is ``module:name`` or ``-``.
"""

import importlib
import json
import sys
from pathlib import Path
from types import FrameType

WATCHED = tuple(
    "ctypes. ftplib. glob. http. mmap. open os. pathlib. shutil. smtplib. socket. sqlite3."
    " subprocess. tempfile. urllib.".split()
)


def main(folder: str, call: str, modules: list[str]) -> None:
    """Import *modules*, make the call, and print what was touched."""
    faults: list[str] = []

    def culprit() -> str | None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename.startswith("<frozen importlib"):
                return None
            if filename.startswith(folder):
                return f"{filename}:{frame.f_lineno}"
            frame = frame.f_back
        return None

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(WATCHED):
            place = culprit()
            if place is not None:
                faults.append(f"{place} {event} {arguments[:1]}")

    sys.addaudithook(hook)
    for module in modules:
        importlib.import_module(module)
    if call != "-":
        module, _, name = call.partition(":")
        getattr(importlib.import_module(module), name)()
    print(json.dumps(faults))


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
