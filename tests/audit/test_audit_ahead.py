"""Hashes made while the engine starts are those of the file as it is read, or they do not count."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shadowaudit.core.facts import Fault
from shadowaudit.generate.cluster import generate
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.hashing import Hashed, hashed_ahead


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    generate(tmp_path / "logs", messages=60, faults={}, seed=5, file_size=8_000)
    return sorted((tmp_path / "logs").rglob("*.LOG"))


def ahead(paths: Sequence[Path]) -> dict[str, Hashed]:
    with hashed_ahead(paths) as found:
        deadline = time.monotonic() + 30
        while len(found) < len(paths) and time.monotonic() < deadline:
            time.sleep(0.01)
    return found


def test_a_hash_made_ahead_covers_what_the_footer_speaks_of(logs: list[Path]) -> None:
    found = ahead(logs)
    for path in logs:
        covered = path.read_bytes()[: found[str(path)].covered]
        assert hashlib.sha256(covered).hexdigest() == found[str(path)].sha256
        facts, _ = digest_file(path, found[str(path)])
        assert facts == digest_file(path)[0]
        assert not facts.faults


def test_the_hash_made_ahead_is_the_one_that_is_compared(logs: list[Path]) -> None:
    known = replace(ahead(logs[:1])[str(logs[0])], sha256="0" * 64)
    assert Fault.WRONG_HASH in digest_file(logs[0], known)[0].faults


def test_a_hash_of_a_file_that_was_changed_since_does_not_count(logs: list[Path]) -> None:
    known = ahead(logs[:1])[str(logs[0])]
    text = bytearray(logs[0].read_bytes())
    place = text.index(b"user")
    text[place : place + 4] = b"resu"
    logs[0].write_bytes(text)
    os.utime(logs[0], ns=(known.modified + 1, known.modified + 1))
    assert Fault.WRONG_HASH in digest_file(logs[0], known)[0].faults


def test_a_hash_that_covers_other_octets_is_made_again(logs: list[Path]) -> None:
    known = replace(ahead(logs[:1])[str(logs[0])], covered=7, sha256="0" * 64)
    assert digest_file(logs[0], known)[0] == digest_file(logs[0])[0]


def test_files_that_are_gone_or_have_no_footer_are_no_harm(logs: list[Path], tmp_path: Path) -> None:
    bare = tmp_path / "MSGTRK20260101-1.LOG"
    bare.write_bytes(b"#Fields: date-time,event-id,recipient-address\r\n")
    found = ahead([tmp_path / "none", bare][1:])
    assert digest_file(bare, found[str(bare)])[0] == digest_file(bare)[0]
    with hashed_ahead([tmp_path / "none"]) as nothing:
        pass
    assert not nothing
