"""Stores message content: small in the database, large in files flushed to disk before their row.

Content is stored once, for all messages that use it (``sharing``), and never rewritten. A file without a row
is left from a crash, and swept at start. A file leaves the page cache once it was sent
(docs/decisions/0021-page-cache.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import ContentDigest, of_content
from shadowrelay.core.identifiers import Digest, MessageId
from shadowrelay.database import sharing
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.opening import sync_directory

INLINE = 64 * 1024  # octets: content up to this size is kept in the database
BLOCK = 256 * 1024
_TOGETHER = 4 << 20  # octets given back to the page cache at once: a fifth of a millisecond
_MOST_PARTS = 64
_PASSING = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
# Never wait for a writer: a flipped bit may have made a pipe of the file.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ID = 36  # characters of a message id, with which the name of a content's file begins
_block = memoryview(bytearray(BLOCK))  # used in the event loop, for one read of the page cache at a time


class ContentDamaged(Exception):
    """Content is short, unreadable, missing or changed: none of it may be used."""


class Spool:
    """Content that is arriving. Up to 64 KiB stay in memory; more goes to a file as it arrives."""

    def __init__(self, directory: Path, name: str, *, cached: bool = True) -> None:
        """``name`` must be unique for all time: an owner may offer the same message again.

        ``cached``: keep the file in the page cache; it is about to be read.
        """
        self.size = 0
        self._digest = ContentDigest()
        self._cached = cached
        self._directory = directory
        self._path = f"{directory}/{name}.eml"
        self._parts: list[bytes] = []
        self._file: int | None = None
        self._made = False

    def write(self, data: bytes) -> None:
        """Append octets. Raises OSError: then discard the spool."""
        self.size += len(data)
        self._digest.update(data)
        if self._file is None:
            self._parts.append(data)
            if len(self._parts) > _MOST_PARTS:  # a client that drips: each part costs more than its octets
                self._parts = [b"".join(self._parts)]
            if self.size <= INLINE:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._made = True
            data = b"".join(self._parts)
            self._parts.clear()
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    @property
    def digest(self) -> Digest:
        """The digest of what was written so far, made from the octets as they came, not from the disk."""
        return self._digest.value

    async def seal(self) -> Content:
        """Finish the content: in memory, or durable in a file (file and directory). Raises OSError."""
        if self._file is None:
            self._parts = [b"".join(self._parts)]  # in memory once: what is offered is what is committed
            return Content(data=self._parts[0])
        await asyncio.to_thread(self._sync)
        return Content(path=self._path)

    def _sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file)
            if not self._cached:
                _uncache(self._file, self.size)
            os.close(self._file)
            self._file = None
            sync_directory(self._directory)

    async def blocks(self) -> AsyncIterator[bytes]:
        """What was written so far, sealed or not."""
        if self._file is None and self._parts:
            yield b"".join(self._parts)
        else:
            async for block in blocks(Content(path=self._path), cached=True):
                yield block

    def discard(self) -> None:
        """Keep nothing."""
        self._parts.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._made:  # an older file of that name is another message's content
            Path(self._path).unlink(missing_ok=True)


def stored(ledger: SqlLedger, message_id: MessageId) -> Content | None:
    """Where the content of a message is, or of the message whose content it uses; None if there is none.

    A row with impossible values gives empty content: that differs from every digest but the digest of empty
    content, which cannot lose anything.
    """
    row = sharing.find(ledger.connection.execute, message_id)
    if row is None:
        return None
    data, path = row
    return Content(data if isinstance(data, bytes) else None, path if isinstance(path, str) else None)


def is_damage(error: OSError) -> bool:
    """Whether the content is gone or unreadable, and not just out of reach (no descriptor, no permission).

    Any error that is not known to pass is damage: a flipped bit can turn a file into a socket.
    """
    return error.errno not in _PASSING


def is_full(error: OSError) -> bool:
    """Whether the disk has no room, or the process no descriptor left; any other error means a bad disk.

    After any other failed write or fsync nothing may be acknowledged.
    """
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}


async def blocks(content: Content, *, cached: bool = False) -> AsyncIterator[bytes]:
    """The octets of a content, block by block. Raises OSError.

    ``cached``: keep them in the page cache; they will be read again soon.
    """
    if content.data is not None:
        yield content.data
        return
    if content.path is None:
        return
    handle = os.open(content.path, _READ)
    try:
        size, at = os.fstat(handle).st_size, 0
        while at < size and (block := _in_memory(handle, at) or await asyncio.to_thread(_read, handle, at)):
            yield block
            at += len(block)
            if not cached and (at >= size or at % _TOGETHER == 0):
                _uncache(handle, at)
    finally:
        os.close(handle)


def _read(handle: int, at: int) -> bytes:
    return os.pread(handle, BLOCK, at)


def _in_memory(handle: int, at: int) -> bytes:
    """The next block from the page cache; empty if it would have to wait for the disk."""
    try:
        return bytes(_block[: os.preadv(handle, [_block], at, os.RWF_NOWAIT)])
    except OSError:  # the read that waits for the disk will raise it
        return b""


def _uncache(handle: int, octets: int) -> None:
    """Drop the first ``octets`` (0: all) from the page cache: the next content is written to that memory."""
    with contextlib.suppress(OSError):  # this file system does not take the advice
        os.posix_fadvise(handle, 0, octets, os.POSIX_FADV_DONTNEED)


def source(content: Content, digest: Digest) -> bytes | AsyncIterator[bytes]:
    """The octets to send. Raises ContentDamaged; for a file only while it is read: see ``verified``."""
    if content.data is None:
        return verified(content, digest)
    if of_content(content.data) != digest:
        raise ContentDamaged("the octets differ from the digest")
    return content.data


async def verified(content: Content, digest: Digest) -> AsyncIterator[bytes]:
    """The octets of a content; the last block only if the whole matches the digest.

    Raises ContentDamaged, and OSError for a failure that may pass.
    """
    found, held = ContentDigest(), b""
    try:
        async for block in blocks(content):
            if held:
                yield held
            found.update(block)
            held = block
    except OSError as error:
        raise _damaged(error) from error
    if found.value != digest:
        raise ContentDamaged("the octets differ from the digest")
    if held:
        yield held


async def examine(content: Content) -> Digest:
    """The digest of what the disk has now. Raises ContentDamaged if it cannot be read, and OSError for a
    failure that may pass.
    """
    if content.data is not None:
        return of_content(content.data)
    found = ContentDigest()
    try:
        if content.path is not None:
            _forget_cached(content.path)
        async for block in blocks(content):
            found.update(block)
    except OSError as error:
        raise _damaged(error) from error
    return found.value


def _damaged(error: OSError) -> Exception:
    return ContentDamaged(f"it cannot be read: {error.strerror}") if is_damage(error) else error


def _forget_cached(path: str) -> None:
    """Drop a file from the page cache, which says nothing about the disk."""
    handle = os.open(path, _READ)
    try:
        _uncache(handle, 0)
    finally:
        os.close(handle)


async def head(content: Content, digest: Digest, most: int) -> bytes:
    """The first ``most`` octets, after comparing the whole content. Raises as ``verified`` does."""
    if isinstance(whole := source(content, digest), bytes):
        return whole[:most]
    taken = b""
    async for block in whole:
        if len(taken) < most:
            taken += block
    return taken[:most]


def prepare(directory: Path) -> None:
    """Create the directory of the content files, durably."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_directory(directory.parent)


def sweep(ledger: SqlLedger, directory: Path, aside: Path | None = None) -> int:
    """Remove files that no row names: a crash before their commit left them. Returns how many. A file whose
    message is known stays: rows are found through an index, which may be damaged.

    ``aside``: move them there instead, because rows may be missing. If the data directory was moved, rows get
    the new paths. A file that cannot be removed stays for the next start.
    """
    run = ledger.connection.execute
    found = run(SQL["content_paths"]).fetchall()
    rows = {Path(path).name: path for (path,) in found if isinstance(path, str)}
    removed = 0
    for path in directory.glob("*.eml"):
        former = rows.get(path.name)
        if former is None and run(SQL["message"], (path.name[:_ID],)).fetchone():
            continue
        if former is None:
            with contextlib.suppress(OSError):
                if aside is None:
                    path.unlink()
                else:
                    aside.mkdir(mode=0o700, exist_ok=True)
                    path.rename(aside / path.name)
                removed += 1
        elif former != str(path):
            run(SQL["move_content"], (str(path), former))
    return removed
