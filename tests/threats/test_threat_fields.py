"""SQL and paths where a stranger's text goes: kept as text, and whatever is kept is the owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from sending import sender, sent
from stations import boundary

SUBJECT = "'; DROP TABLE message; --"
HOSTILE = (
    '"\'; DROP TABLE message; --"@example.net',
    "a'--@example.net",
    '"../../etc/passwd"@example.net',
    "/etc/passwd@example.net",
)


@pytest.mark.parametrize("address", HOSTILE)
async def test_sql_and_paths_in_fields_are_kept_as_text(tmp_path: Path, address: str) -> None:
    envid = "a'--../x"
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        text = f"Subject: {SUBJECT}\r\nMessage-ID: <'../{'x' * 300}>\r\n\r\n".encode() + b"large\r\n" * 20_000
        async with sender(owner) as client:
            parameters = f" ENVID={envid} RET=HDRS"
            assert (await client.begin(address, parameters=parameters)).startswith("250 ")
            assert (await client.content(text)).startswith("250 ")
        for node in (owner, holder):
            (copy,) = await node.copies()
            assert copy.recipients[0].address == address
            assert (copy.envelope.envid, copy.envelope.subject) == (envid, SUBJECT)
            (name,) = node.files()
            assert name.startswith(copy.id)
            assert (await node.octets(copy.id)).endswith(text)
        assert set(os.listdir(tmp_path)) == {"mx1", "mx2"}


async def test_what_a_node_keeps_is_its_owners_alone(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        assert (await sent(owner, b"\r\n" + b"large\r\n" * 20_000)).startswith("250 ")
        for node in (owner, holder):
            for path in (node.directory, *node.directory.rglob("*")):
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
