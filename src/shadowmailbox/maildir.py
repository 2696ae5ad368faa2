"""Stores messages in Maildirs below one directory: ``<dir>/<domain>/<local part>/{tmp,new,cur}``.

A message is written and flushed in ``tmp``, renamed into ``new``, and ``new`` is flushed: from then on it
survives a power cut. Addresses come from strangers, so names have safe characters only, and no symbolic link
is followed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from shadowmailbox.store import ContentFile
from shadowrelay.wire.addresses import split

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTHING = "%"
_UNSAFE = re.compile(rb"^\.|[^A-Za-z0-9._+=-]")


@dataclass(frozen=True, slots=True)
class MailboxCopy:
    """One mailbox's copy of a message: ``prefix`` goes before the content."""

    recipient: str
    prefix: bytes


def prepare(root: Path) -> None:
    """Create the directory durably, and sweep what a crash left unfinished. Only one server may use it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (root, root.parent):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for unfinished in root.glob("*/*/tmp/*"):
        unfinished.unlink(missing_ok=True)


def mailbox_of(address: str, *, hostname: str) -> str:
    """The canonical form of a recipient: unquoted, domain in lower case; Postmaster gets ``hostname``."""
    local, domain = split(address)
    return f"{local}@{domain or hostname.lower()}"


def folder_of(recipient: str) -> tuple[str, str]:
    """The two directory names of a mailbox; neither is empty, begins with a dot or has a slash."""
    local, _, domain = recipient.rpartition("@")
    return _safe(domain), _safe(local)


def store(root: Path, letters: Sequence[MailboxCopy], content: ContentFile, *, host: str) -> None:
    """Put a message into each mailbox; all copies are durable on return. Blocks: call it in a thread.

    No copy is visible before all are written, so a failure for lack of space leaves nothing behind. Raises
    OSError.
    """
    with ExitStack() as open_files:
        staged: list[tuple[str, int, int]] = []
        top = _open(os.fspath(root), None, open_files)
        try:
            for letter in letters:
                tmp, new = _open_maildir(top, letter.recipient, open_files)
                name = _name(host)
                staged.append((name, tmp, new))
                _write(name, tmp, letter.prefix, content)
        except BaseException:
            for name, tmp, _ in staged:
                with suppress(OSError):
                    os.unlink(name, dir_fd=tmp)
            raise
        for name, tmp, new in staged:
            os.rename(name, name, src_dir_fd=tmp, dst_dir_fd=new)
            os.fsync(new)


def messages(root: Path) -> Iterator[tuple[str, Path]]:
    """Every delivered message, as (recipient, file)."""
    for folder in sorted(path for path in root.glob("*/*") if not path.parent.name.startswith(".")):
        recipient = f"{_plain(folder.name)}@{_plain(folder.parent.name)}"
        for box in ("new", "cur"):
            for file in sorted((folder / box).glob("*")):
                yield recipient, file


def _write(name: str, tmp: int, prefix: bytes, content: ContentFile) -> None:
    descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=tmp)
    with open(descriptor, "wb") as file:
        file.write(prefix)
        content.seek(0)
        shutil.copyfileobj(content, file, 65_536)
        file.flush()
        os.fsync(descriptor)


def _open_maildir(top: int, recipient: str, open_files: ExitStack) -> tuple[int, int]:
    domain, local = folder_of(recipient)
    folder = _made(local, _made(domain, top, open_files), open_files)
    boxes = {box: _made(box, folder, open_files) for box in ("tmp", "new", "cur")}
    return boxes["tmp"], boxes["new"]


def _made(name: str, parent: int, open_files: ExitStack) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass
    else:
        os.fsync(parent)
    return _open(name, parent, open_files)


def _open(name: str, parent: int | None, open_files: ExitStack) -> int:
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    open_files.callback(os.close, descriptor)
    return descriptor


def _safe(text: str) -> str:
    if not text:  # the valid address ""@example.net
        return _NOTHING
    return _UNSAFE.sub(lambda found: b"%%%02X" % ord(found[0]), text.encode("utf-8")).decode("ascii")


def _plain(name: str) -> str:
    return "" if name == _NOTHING else unquote(name)


def _name(host: str) -> str:
    safe_host = host.replace("/", r"\057").replace(":", r"\072")
    return f"{time.time_ns()}.{secrets.token_hex(8)}.{safe_host}"
