"""What strace writes, read: the calls, what they are about, and which one was tampered with."""

from __future__ import annotations

import pytest

from .bed.strace import Call, Fault, parse
from .bed.walking import has_to_end

LOG = """\
101   write(24<socket:[1056859]>, ""..., 24)  = 24
102   pwrite64(7</lab/nodes/mx1/data/transport.db-wal>, ""..., 4096, 56) = 4096
102   fdatasync(7</lab/nodes/mx1/data/transport.db-wal> <unfinished ...>
101   write(12<anon_inode:[eventfd]>, ""..., 8) = 8
102   <... fdatasync resumed>) = 0
103   fsync(9</lab/nodes/mx1/data/content>) = 0
103   rename("/lab/tracking/mx1/.MSGTRK-mx1-1-1.LOG.open", "/lab/tracking/mx1/MSGTRK-mx1-1-1.LOG") = 0
102   +++ exited with 0 +++
""".splitlines()


def test_calls_are_told_apart_by_thread_and_by_what_they_are_about() -> None:
    assert [(call.thread, call.label) for call in parse(LOG)] == [
        (101, "write socket"),
        (102, "pwrite64 database log"),
        (102, "fdatasync database log"),
        (101, "write wake-up"),
        (103, "fsync directory"),
        (103, "rename tracking log"),
    ]


def test_a_call_that_another_thread_cut_in_two_counts_once() -> None:
    assert sum(call.name == "fdatasync" for call in parse(LOG)) == 1


def test_the_call_that_was_tampered_with_is_known() -> None:
    lines = [
        'write(9</lab/data/content/m.eml>, ""..., 100) = 100',
        "fsync(9</lab/data/content/m.eml>) = -1 EIO (Input/output error) (INJECTED)",
    ]
    assert list(parse(lines)) == [
        Call(None, "write", "content", injected=False),
        Call(None, "fsync", "content", injected=True),
    ]


def test_the_last_call_of_a_process_that_was_killed_is_read_too() -> None:
    lines = ['pwrite64(7</lab/data/transport.db>, ""..., 4096, 0) = ?', "+++ killed by SIGKILL +++"]
    assert [call.label for call in parse(lines)] == ["pwrite64 database"]


@pytest.mark.parametrize(
    ("name", "target", "fault", "ends"),
    [
        ("fdatasync", "database log", Fault.EIO, True),
        ("fdatasync", "database log", Fault.ENOSPC, True),
        ("fsync", "content", Fault.EIO, True),
        ("write", "content", Fault.ENOSPC, False),  # 452
        ("fsync", "tracking log", Fault.EIO_ON, True),
        ("pwrite64", "database", Fault.EIO, False),  # repeated from the log, which is safe
        ("unlink", "database log", Fault.EIO, False),
        ("write", "socket", Fault.EIO, False),
    ],
)
def test_a_node_has_to_end_when_what_it_promises_by_cannot_be_written(
    name: str, target: str, fault: Fault, ends: bool
) -> None:
    assert has_to_end(Call(None, name, target, injected=True), fault) is ends
