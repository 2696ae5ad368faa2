"""``shadowrelay user``: edits the file of users who may log in to send."""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from shadowrelay.core.reception.users import (
    SALT,
    UsersInvalid,
    format_users,
    hashed,
    is_name,
    parse_users,
    verifier,
)

_MOST = 1024  # octets of a password

_file = click.option(
    "--file",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file, as in receive.NAME.users_file.",
)


@click.group()
def user() -> None:
    """Add, list and remove users who may log in to send (AUTH). A node sees the change within a second."""


@user.command("add")
@click.argument("name")
@click.option(
    "--keep",
    type=click.Choice(["scram", "scrypt"]),
    default="scram",
    show_default=True,
    help="What the file keeps of the password. scram: a verifier, for SCRAM-SHA-256, PLAIN and LOGIN. "
    "scrypt: a hash that is harder to guess from a stolen file, for PLAIN and LOGIN alone.",
)
@_file
def add(name: str, keep: str, path: Path) -> None:
    """Add the user NAME, or give it another password.

    On a terminal the command asks for the password; otherwise it is the first line of standard input.
    """
    if not is_name(name):
        raise click.ClickException(
            "a name has 1 to 128 letters, digits and . _ @ + = ~ / - and begins with a letter or a digit"
        )
    _read(path)  # report errors of the file before asking for a password
    make = verifier if keep == "scram" else hashed
    line = format_users({name: make(_password(), secrets.token_bytes(SALT))}).rstrip("\n")
    with _changing(path) as lines:
        lines[:] = [*_without(name, lines), line]
    click.echo(f"{name} may log in")


@user.command("list")
@_file
def list_users(path: Path) -> None:
    """Print the names, one per line."""
    for name in parse_users(_read(path)):
        click.echo(name)


@user.command("remove")
@click.argument("name")
@_file
def remove(name: str, path: Path) -> None:
    """Remove the user NAME. A session that is logged in stays so until its connection ends."""
    with _changing(path) as lines:
        others = _without(name, lines)
        if others == lines:
            raise click.ClickException(f"{path} has no user {name}")
        lines[:] = others
    click.echo(f"{name} may no longer log in")


def _password() -> bytes:
    if sys.stdin is None:  # it was closed
        raise click.ClickException("no password: standard input is closed")
    if sys.stdin.isatty():
        text: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        password = text.encode(errors="surrogateescape")
    else:
        password = sys.stdin.buffer.readline(_MOST + 3).rstrip(b"\r\n")
    if not password or len(password) > _MOST or b"\0" in password:
        raise click.ClickException(f"a password has 1 to {_MOST} octets, none of them NUL")
    return password


@contextmanager
def _changing(path: Path) -> Iterator[list[str]]:
    """The lines of the file, with remarks, to be changed; written at the end. Locks out other changes."""
    path = path.resolve()  # a link stays a link
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        lines = _read(path).splitlines()
        yield lines
        try:
            _write(path, lines)
            os.fsync(folder)
        except OSError as error:
            raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    finally:
        os.close(folder)


def _without(name: str, lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.partition(":")[0] != name]


def _read(path: Path) -> str:
    """The text of a file of users; empty if there is no file."""
    try:
        if path.exists() and not path.is_file():  # a device would be replaced
            raise click.ClickException(f"{path} is not a file")
        text = path.read_text("utf-8")
        parse_users(text)
    except FileNotFoundError:
        return ""
    except (UsersInvalid, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from error
    return text


def _write(path: Path, lines: Sequence[str]) -> None:
    """Replace the file as a whole, with the owner and mode of the old file, else readable by its owner."""
    fresh = path.with_name(f".{path.name}.new")
    before = path.stat() if path.exists() else None
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        if before is not None:
            os.fchmod(handle, before.st_mode & 0o777)
            with suppress(PermissionError):  # another user's file: that user can set the owner
                os.fchown(handle, before.st_uid, before.st_gid)
        file.flush()
        os.fsync(handle)
    os.rename(fresh, path)
