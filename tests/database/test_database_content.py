"""Contents: small ones wait in memory for their row, large ones are files that were flushed before it."""

from __future__ import annotations

import ctypes
import mmap
import os
import tracemalloc
from pathlib import Path

import pytest

from shadowrelay.core.digests import of_content
from shadowrelay.database.content import BLOCK, INLINE, ContentDamaged, Spool, blocks, head, verified

PAGE = os.sysconf("SC_PAGE_SIZE")
LARGE = bytes(range(256)) * (INLINE // 256 + 1)


def listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def read(spool: Spool) -> bytes:
    return b"".join([block async for block in spool.blocks()])


async def test_up_to_64_kib_stay_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "m")
    spool.write(bytes(INLINE - 1))
    spool.write(b"x")
    assert await read(spool) == bytes(INLINE - 1) + b"x"
    assert await spool.seal() == (await spool.seal())
    content = await spool.seal()
    assert (content.path, len(content.data or b"")) == (None, INLINE)
    assert listing(tmp_path) == []


async def test_content_that_drips_in_needs_no_more_memory_than_its_octets(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "m")
    content = bytes(range(256)) * (INLINE // 256)
    tracemalloc.start()
    try:
        for at in range(0, INLINE, 2):
            spool.write(content[at : at + 2])
        assert tracemalloc.get_traced_memory()[1] < 4 * INLINE
    finally:
        tracemalloc.stop()
    assert (await spool.seal()).data == content


async def test_more_goes_to_a_file_that_is_flushed_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []
    real = os.fsync

    def fsync(handle: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    spool = Spool(tmp_path, "m")
    for block in (LARGE[:1000], LARGE[1000:], LARGE):
        spool.write(block)
    assert await read(spool) == LARGE * 2  # also before it is sealed
    content = await spool.seal()
    assert flushed == [str(tmp_path / "m.eml"), str(tmp_path)]
    assert content.path == str(tmp_path / "m.eml")
    assert (tmp_path / "m.eml").stat().st_mode & 0o777 == 0o600
    assert spool.size == len(LARGE) * 2
    assert b"".join([block async for block in blocks(content)]) == LARGE * 2
    assert await head(content, of_content(LARGE * 2), 300) == (LARGE * 2)[:300]
    assert await read(spool) == LARGE * 2


async def test_a_discarded_spool_leaves_nothing(tmp_path: Path) -> None:
    for sealed in (False, True):
        spool = Spool(tmp_path, "m")
        spool.write(LARGE)
        if sealed:
            await spool.seal()
        spool.discard()
        spool.discard()
        assert listing(tmp_path) == []


async def test_a_file_that_was_there_before_is_neither_written_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "m.eml").write_bytes(b"somebody's")
    spool = Spool(tmp_path, "m")
    with pytest.raises(FileExistsError):
        spool.write(LARGE)
    spool.discard()
    assert (tmp_path / "m.eml").read_bytes() == b"somebody's"


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    (tmp_path / "m.eml").symlink_to(target)
    with pytest.raises(OSError, match="exists"):
        Spool(tmp_path, "m").write(LARGE)
    assert target.read_bytes() == b"untouched"


async def test_a_large_content_is_read_in_blocks(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "m")
    spool.write(bytes(3 * BLOCK + 1))
    sizes = [len(block) async for block in blocks(await spool.seal())]
    assert sizes == [BLOCK, BLOCK, BLOCK, 1]


async def test_the_last_octets_wait_for_the_comparison(tmp_path: Path) -> None:
    """What comes before them may leave: without its end no message is accepted."""
    spool = Spool(tmp_path, "m")
    spool.write(bytes(2 * BLOCK) + b"end")
    content = await spool.seal()
    assert [len(block) async for block in verified(content, spool.digest)] == [BLOCK, BLOCK, 3]
    leaving = verified(content, of_content(b"another"))
    assert [len(await anext(leaving)), len(await anext(leaving))] == [BLOCK, BLOCK]
    with pytest.raises(ContentDamaged, match="digest"):
        await anext(leaving)


@pytest.mark.parametrize("answer", ["nothing", "a part", "an error"])
async def test_what_the_page_cache_does_not_hold_is_read_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """A cache that holds nothing of a block says EAGAIN, one that holds its begin gives that."""
    spool = Spool(tmp_path, "m")
    data = os.urandom(2 * BLOCK + 5)
    spool.write(data)
    content = await spool.seal()
    real = os.preadv

    def preadv(handle: int, buffers: list[memoryview], at: int, flags: int) -> int:
        if answer == "a part":
            count = real(handle, buffers, at)
            return min(count, 4096)
        raise BlockingIOError if answer == "nothing" else OSError(95, "not supported")

    monkeypatch.setattr(os, "preadv", preadv)
    assert b"".join([block async for block in blocks(content)]) == data


async def test_content_that_the_disk_does_not_give_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, "m")
    spool.write(LARGE)
    content = await spool.seal()

    def failing(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", failing)
    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(OSError, match="Input/output"):
        [block async for block in blocks(content)]


def remembered(path: Path) -> int:
    """How many octets of it the page cache holds, in whole pages. By mincore(2): reading would change it."""
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // PAGE))()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE) as mapped:
        begin = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.byref(begin), ctypes.c_size_t(size), pages)
        del begin
    assert not failed
    return PAGE * sum(page & 1 for page in pages)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A directory whose files need not be in memory."""
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(PAGE))
    handle = os.open(probe, os.O_RDWR)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)
    if remembered(probe):
        pytest.skip("this file system has all its files in memory")
    return tmp_path


async def test_a_shadow_copy_takes_no_memory_once_it_is_on_disk(disk: Path) -> None:
    spool = Spool(disk, "m", cached=False)
    data = os.urandom(4 * BLOCK + 5)
    spool.write(data)
    content = await spool.seal()
    assert remembered(Path(content.path or "")) < BLOCK
    assert b"".join([block async for block in blocks(content)]) == data


async def test_content_is_kept_in_memory_until_it_was_sent(disk: Path) -> None:
    spool = Spool(disk, "m")
    data = os.urandom(20 * BLOCK + 5)  # more than is given back at once
    spool.write(data)
    content = await spool.seal()
    path = Path(content.path or "")
    assert await read(spool) == data  # offered to another member
    assert remembered(path) >= len(data)
    assert b"".join([block async for block in blocks(content)]) == data
    assert remembered(path) < BLOCK


async def test_a_file_system_that_takes_no_advice_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    spool = Spool(tmp_path, "m", cached=False)
    spool.write(LARGE)
    assert b"".join([block async for block in blocks(await spool.seal())]) == LARGE
