"""Message content: small ones in the database, large ones as files flushed to disk before their row.

Stored once and never rewritten. A file without a row is an orphan of a crash, swept at start. A file stays in
the page cache no longer than until it was sent (docs/decisions/0021-page-cache.md).
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
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.opening import sync_directory

INLINE = 64 * 1024  # octets up to which content is kept in the database
BLOCK = 256 * 1024
_TOGETHER = 4 << 20  # octets whose memory is given back at once: a fifth of a millisecond
_MOST_PARTS = 64
_PASSING = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
# Never to wait for a writer: what stands there may have become a pipe.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_block = memoryview(bytearray(BLOCK))  # of the event loop, from one look to the page cache to its end


class ContentDamaged(Exception):
    """A content is short, unreadable, missing or changed: nothing of it may be relied on."""


class Spool:
    """Content on its way in. Up to 64 KiB stay in memory, more goes to a file as it arrives."""

    def __init__(self, directory: Path, name: str, *, cached: bool = True) -> None:
        """``name`` is used by nobody else, ever: an owner may offer the same message again.

        ``cached``: what is on disk stays in memory too, for it is about to be read.
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
        """Take the next octets. Raises OSError; the spool must be discarded then."""
        self.size += len(data)
        self._digest.update(data)
        if self._file is None:
            self._parts.append(data)
            if len(self._parts) > _MOST_PARTS:  # of a client that drips: each would cost more than its octets
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
        """Of what was written so far: made of the octets as they came, not of what the disk keeps of them."""
        return self._digest.value

    async def seal(self) -> Content:
        """All is here: in memory, or durably in a file (file and directory). Raises OSError."""
        if self._file is None:
            return Content(data=b"".join(self._parts))
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
        if self._made:  # a file of that name that was there before is somebody's content
            Path(self._path).unlink(missing_ok=True)


def stored(ledger: SqlLedger, message_id: MessageId) -> Content | None:
    """Where the content of a message is; None if there is no such message.

    A row with what cannot be there says that it is nowhere: no digest is that of nothing, but of an empty
    content, of which nothing can be lost.
    """
    row = ledger.connection.execute(SQL["content"], (message_id,)).fetchone()
    if row is None:
        return None
    data, path = row
    return Content(data if isinstance(data, bytes) else None, path if isinstance(path, str) else None)


def is_damage(error: OSError) -> bool:
    """Is it gone or unreadable, rather than out of reach for now (no descriptor left, no permission)?

    What is not known to pass is damage: one flipped bit makes a socket of a file, of which nobody reads.
    """
    return error.errno not in _PASSING


def is_full(error: OSError) -> bool:
    """No room, or no descriptor to open a file with, rather than a disk that cannot be trusted.

    After a failed write or fsync nothing may be acknowledged any more.
    """
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}


async def blocks(content: Content, *, cached: bool = False) -> AsyncIterator[bytes]:
    """The octets of a content, block by block. Raises OSError.

    ``cached``: they stay in memory, for they will be read again soon.
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
    """What memory holds of the next block; nothing when the disk would have to be waited for."""
    try:
        return bytes(_block[: os.preadv(handle, [_block], at, os.RWF_NOWAIT)])
    except OSError:  # whatever is wrong, the one who waits for the disk will be told
        return b""


def _uncache(handle: int, octets: int) -> None:
    """Give the memory of the first octets (0: all) back: the next content is written there, not to new
    memory.
    """
    with contextlib.suppress(OSError):  # an advice that this file system does not take
        os.posix_fadvise(handle, 0, octets, os.POSIX_FADV_DONTNEED)


def source(content: Content, digest: Digest) -> bytes | AsyncIterator[bytes]:
    """The octets to be sent. Raises ContentDamaged, for a file when it is read: see ``verified``."""
    if content.data is None:
        return verified(content, digest)
    if of_content(content.data) != digest:
        raise ContentDamaged("the octets are not those of the digest")
    return content.data


async def verified(content: Content, digest: Digest) -> AsyncIterator[bytes]:
    """The octets of a content, the last of them only if all are those of the digest.

    Raises ContentDamaged, and OSError for what may pass.
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
        raise ContentDamaged("the octets are not those of the digest")
    if held:
        yield held


async def examine(content: Content) -> Digest:
    """The digest of what is there now. Raises ContentDamaged if it cannot be read, and OSError for what may
    pass.
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
    """What memory holds of a file says nothing about the disk."""
    handle = os.open(path, _READ)
    try:
        _uncache(handle, 0)
    finally:
        os.close(handle)


async def head(content: Content, digest: Digest, most: int) -> bytes:
    """The first ``most`` octets of a content, all of which is compared first. Raises as ``verified`` does."""
    if isinstance(whole := source(content, digest), bytes):
        return whole[:most]
    taken = b""
    async for block in whole:
        if len(taken) < most:
            taken += block
    return taken[:most]


def prepare(directory: Path) -> None:
    """Make the directory of the content files, durably."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_directory(directory.parent)


def sweep(ledger: SqlLedger, directory: Path, aside: Path | None = None) -> int:
    """Remove files that no row names: left by a crash before their commit. Returns how many.

    ``aside``: keep them there, for rows may be missing. Rows follow a data directory that was moved. What
    cannot be removed is no file of ours, or stays for the next start.
    """
    run = ledger.connection.execute
    found = run(SQL["content_paths"]).fetchall()
    rows = {Path(path).name: path for (path,) in found if isinstance(path, str)}
    removed = 0
    for path in directory.glob("*.eml"):
        former = rows.get(path.name)
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
