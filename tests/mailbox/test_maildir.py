from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowmailbox.maildir import MailboxCopy, folder_of, mailbox_of, messages, store


def put(root: Path, recipient: str, content: bytes = b"x") -> None:
    store(root, [MailboxCopy(recipient, b"")], io.BytesIO(content), host="a/b:c")


@given(st.text(min_size=1, max_size=64), st.text(min_size=1, max_size=60))
def test_no_address_leads_out_of_the_directory(local: str, domain: str) -> None:
    try:
        recipient = f"{local}@{domain}".encode().decode()
    except UnicodeEncodeError:
        return
    for name in folder_of(recipient):
        assert name not in {"", ".", ".."}
        assert not set(name) & {"/", "\0"}
        assert not name.startswith(".")


@pytest.mark.parametrize(
    ("address", "folder"),
    [
        ("Alice+tag@Example.NET", ("example.net", "Alice+tag")),
        ('"../../etc"@example.net', ("example.net", "%2E./../etc".replace("/", "%2F"))),
        ("ü@example.net", ("example.net", "%C3%BC")),
        ("a@[IPv6:::1]", ("%5Bipv6%3A%3A%3A1%5D", "a")),
        ("Postmaster", ("mx.example.net", "Postmaster")),
        ('"john"@example.net', ("example.net", "john")),
        ("a%b@example.net", ("example.net", "a%25b")),
    ],
)
def test_a_mailbox_has_a_safe_folder(address: str, folder: tuple[str, str]) -> None:
    assert folder_of(mailbox_of(address, hostname="MX.example.net")) == folder


def test_messages_lists_what_was_stored(tmp_path: Path) -> None:
    (tmp_path / ".hidden" / "x" / "new").mkdir(parents=True)
    (tmp_path / ".hidden" / "x" / "new" / "1").touch()
    recipients = ["../a@example.net", "b c@example.net", "ü@example.net"]
    for recipient in recipients:
        put(tmp_path, recipient)
    found = list(messages(tmp_path))
    assert sorted(recipient for recipient, _ in found) == sorted(recipients)
    assert {path.read_bytes() for _, path in found} == {b"x"}


def test_everything_is_the_owners_alone(tmp_path: Path) -> None:
    put(tmp_path, "a@example.net")
    [(_, path)] = messages(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("level", ["example.net", "example.net/a", "example.net/a/tmp", "example.net/a/new"])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, level: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = tmp_path / "root"
    (root / level).parent.mkdir(parents=True)
    (root / level).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"."):
        put(root, "a@example.net")
    assert list(elsewhere.rglob("*")) == []


def test_a_file_and_its_folder_are_flushed_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a@example.net")
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def flush(descriptor: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def move(*arguments: object, **named: object) -> None:
        order.append("rename")
        rename(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "rename", move)
    put(tmp_path, "a@example.net")
    assert order == ["file", "rename", "folder"]
