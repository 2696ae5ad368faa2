"""Detects a directory on storage that ends with its container: the commonest way to lose mail there."""

from __future__ import annotations

import re
from pathlib import Path

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_WRITABLE_LAYER = frozenset({"overlay", "aufs", "fuse-overlayfs"})
_ANONYMOUS = re.compile(r"/volumes/[0-9a-f]{64}/_data(?:/|$)")
_EMPTY_DIR = re.compile(r"/kubernetes\.io~empty-dir/")
MOUNTS = Path("/proc/self/mountinfo")


def why_ephemeral(directory: Path, mounts: str) -> str:
    """The kind of storage, if it does not outlive the container or the machine; else empty.

    ``mounts`` is the text of /proc/self/mountinfo (proc(5)): the fourth field is the root within the file
    system, the fifth the mount point; the type follows a hyphen.
    """
    found, root, kind = "", "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if "-" not in fields[5:]:
            continue
        mounted = _unescaped(fields[4])
        if len(mounted) >= len(found) and directory.is_relative_to(
            mounted
        ):  # a later mount hides an earlier one
            found, root, kind = mounted, _unescaped(fields[3]), fields[fields.index("-", 5) + 1]
    if kind in _IN_MEMORY:
        return "memory"
    if kind in _WRITABLE_LAYER and found == "/":
        return "the container's own layer"
    if _ANONYMOUS.search(root):
        return "a volume without a name, which the next container does not get"
    if _EMPTY_DIR.search(root):
        return "an emptyDir volume, which goes with its pod"
    return ""


def of_this_process(directory: Path) -> str:
    """``why_ephemeral`` for a directory as this process sees it; empty if it cannot be known."""
    try:
        return why_ephemeral(directory.resolve(), MOUNTS.read_text("utf-8", "surrogateescape"))
    except OSError:
        return ""


def _unescaped(field: str) -> str:
    """Decode blanks and other characters that are written as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field)
