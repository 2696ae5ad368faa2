"""Processes in namespaces of their own: what they mount, serve and write to /etc, nobody else sees."""

from __future__ import annotations

import shutil
import subprocess

OWN_MACHINE = """\
set -e
mount --make-rprivate /
mount -t proc proc /proc
ip link set lo up
mount -t tmpfs tmpfs {scratch}
mkdir {scratch}/upper {scratch}/work
mount -t overlay -o lowerdir=/etc,upperdir={scratch}/upper,workdir={scratch}/work overlay /etc
"""
"""How a script begins that is the first process in them; ``scratch`` is an empty directory."""


def lacking(tools: tuple[str, ...], namespaces: str) -> str:
    """What this machine lacks for them; empty when nothing is. ``namespaces``: options of unshare."""
    if absent := [tool for tool in ("unshare", "ip", *tools) if shutil.which(tool) is None]:
        return f"{' and '.join(absent)} not installed"
    tried = subprocess.run(["unshare", namespaces, "true"], check=False, capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""
