"""Reading a file that has to lie below a folder, whatever the path says and whoever races.

The path comes from a model, and the folder from an author whom nobody has checked. Resolving the
path first and comparing the result with the folder is not enough: between the comparison and the
opening, a directory can become a link. So nothing is ever opened by more than one name. The path
is walked from the folder on, each part looked at and opened relative to the directory that is
open already, links not followed. A link is read and its target walked in turn, by the same rules,
so one that stays below the folder works and one that leaves it is refused where it would leave.

What is opened is looked at once more when it is open. A pipe would wait for a writer and a device
may act on being opened, so neither is opened if it can be seen before; if one takes the place of
a file in between, the opening does not wait, and nothing is read. Only so many bytes are: the size
that a file claims is checked before, and what it really has while reading.

What cannot be seen is a hard link; to be able to make one is to be able to read the file.
Where the system has no way to open relative to a directory (Windows), this raises.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from typing import Final, Literal, TypeAlias, get_args

import attrs

from harness._messages import FailureKind

__all__ = ["OBSTACLES", "RESOURCE_ROWS", "Obstacle", "ResourceRow", "read_below"]

Obstacle: TypeAlias = Literal[
    "absolute", "parent", "outside", "forbidden", "special", "too_large", "missing", "directory"
]
"""What a path leads to that is no file to read."""

OBSTACLES: Final[tuple[Obstacle, ...]] = get_args(Obstacle)


@attrs.frozen
class ResourceRow:
    """One row: what a path led to, and how it is refused."""

    obstacle: Obstacle
    kind: FailureKind
    text: str


RESOURCE_ROWS: Final[tuple[ResourceRow, ...]] = (
    ResourceRow("absolute", "authz", "it is absolute, expected one from the skill's folder on"),
    ResourceRow("parent", "authz", "it goes up with '..', expected one below the skill's folder"),
    ResourceRow("outside", "authz", "it leads out of the skill's folder by a link"),
    ResourceRow("forbidden", "authz", "it may not be read"),
    ResourceRow("special", "authz", "it is no regular file"),
    ResourceRow("too_large", "authz", "it is larger than may be read"),
    ResourceRow("missing", "not_found", "there is no such file"),
    ResourceRow("directory", "not_found", "it is a folder, expected a file"),
)
"""How each obstacle is refused; nothing but a regular file is ever read."""

_FOLDER_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
)  # fmt: skip
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_FILE_FLAGS: Final = (
    os.O_RDONLY
    | _NO_LINK
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_LONGEST: Final = 4_096
_DEEPEST: Final = 32
_MOST_LINKS: Final = 40
_CHUNK: Final = 64 * 1024

_BY_ERRNO: Final[dict[int, Obstacle]] = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ENAMETOOLONG: "missing",
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.ELOOP: "special",  # it was no link when it was looked at
    errno.EINVAL: "special",  # it was one then
    errno.ENXIO: "special",
}


def read_below(folder: str, path: str, *, most: int) -> bytes | Obstacle:
    """Return the content of the file at *path* below *folder*, or what is there instead.

    Blocks. The path has forward slashes, and no part of it may be ``..``.

    Args:
        folder: trusted; links in it are followed.
        path: from *folder* on.
        most: bytes; a larger file is not read.

    Raises:
        OSError: the system failed in another way than the path explains.
        NotImplementedError: the system cannot open relative to a directory.
    """
    if path.startswith("/"):
        return "absolute"
    parts = path.split("/")
    if ".." in parts:
        return "parent"
    if len(path) > _LONGEST or "\0" in path:
        return "missing"
    walk = _Walk(os.path.realpath(folder))
    try:
        opened = walk.open(deque(parts))
        if not isinstance(opened, int):
            return opened
        try:
            return _content(opened, most)
        finally:
            os.close(opened)
    except UnicodeEncodeError:
        return "missing"
    except OSError as error:
        obstacle = _BY_ERRNO.get(error.errno or 0)
        if obstacle is None:
            raise
        return obstacle
    finally:
        walk.close()


def _content(file: int, most: int) -> bytes | Obstacle:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        return "special"
    if status.st_size > most:
        return "too_large"
    content = bytearray()
    while len(content) <= most:
        chunk = os.read(file, min(_CHUNK, most + 1 - len(content)))
        if not chunk:
            return bytes(content)
        content += chunk
    return "too_large"


@attrs.define(eq=False)
class _Walk:
    """A way down from a folder, with every directory on it held open."""

    _root: str
    _held: list[int] = attrs.field(factory=list, init=False)
    _links: int = attrs.field(default=0, init=False)

    def open(self, parts: deque[str]) -> int | Obstacle:
        """Return the open file that *parts* lead to."""
        self._held.append(os.open(self._root, _FOLDER_FLAGS))
        while parts:
            part = parts.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if len(self._held) == 1:
                    return "outside"
                self._let_go(1)
                continue
            mode = os.stat(part, dir_fd=self._held[-1], follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                obstacle = self._follow(part, parts)
                if obstacle is not None:
                    return obstacle
            elif stat.S_ISDIR(mode):
                if len(self._held) > _DEEPEST:
                    return "missing"
                flags = _FOLDER_FLAGS | _NO_LINK
                self._held.append(os.open(part, flags, dir_fd=self._held[-1]))
            elif not stat.S_ISREG(mode):
                return "special"
            elif parts:
                return "missing"
            else:
                return os.open(part, _FILE_FLAGS, dir_fd=self._held[-1])
        return "directory"

    def _follow(self, part: str, parts: deque[str]) -> Obstacle | None:
        """Put the target of the link *part* in front of *parts*."""
        self._links += 1
        if self._links > _MOST_LINKS:
            return "missing"
        target = os.readlink(part, dir_fd=self._held[-1])
        if target.startswith("/"):
            if not f"{target}/".startswith(f"{self._root}/"):
                return "outside"
            target = target[len(self._root) :]
            self._let_go(len(self._held) - 1)
        parts.extendleft(reversed(target.split("/")))
        return None

    def _let_go(self, count: int) -> None:
        for _ in range(count):
            os.close(self._held.pop())

    def close(self) -> None:
        """Close every directory."""
        self._let_go(len(self._held))
