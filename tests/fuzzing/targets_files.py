"""Targets: what is read from files and the environment: settings, and the tracking log."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from shadowrelay.core.reception.users import UsersInvalid, format_users, is_name, parse_users
from shadowrelay.settings import Settings, apply_overrides, effective, load_settings
from shadowrelay.settings.errors import SettingError, SettingsInvalid
from shadowrelay.settings.loading import to_toml
from shadowrelay.settings.values import (
    format_duration,
    format_size,
    parse_dialled,
    parse_domain_pattern,
    parse_duration,
    parse_host_port,
    parse_network,
    parse_size,
)
from shadowrelay.tracking.files import LogName
from shadowrelay.tracking.format import COLUMNS, header, neutralise, parse_row, render, restore, row_identity
from shadowrelay.tracking.recovery import recover
from shadowrelay.tracking.verify import Problem, verify_file

from .registry import Target, must, text_of
from .targets_wire import _NOW

_INCARNATION = "00112233445566aa"
_MINIMAL = b'name = "mx1.example.net"\n[receive.default]\nlisten = "127.0.0.1:2525"\n'


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    """For the whole process; in memory where the machine has such a place."""
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="fuzz-", dir=shared if shared.is_dir() else None)


def check_settings_file(data: bytes) -> None:
    """Any file is Settings that load again from what is shown of them, or SettingsInvalid with printable
    errors.
    """
    path = Path(_directory().name) / "shadowrelay.toml"
    path.write_bytes(data)
    try:
        settings = load_settings(path, {})
    except SettingsInvalid as error:
        _printable(error)
        return
    secret = (
        {"SHADOWRELAY_ADMIN__TOKEN": settings.admin.token.get_secret_value()} if settings.admin.token else {}
    )
    path.write_text(to_toml(_shown(settings)), "utf-8")
    must(load_settings(path, secret).model_dump() == settings.model_dump(), "the same settings")


def _shown(settings: Settings) -> dict[str, Any]:
    """What ``config show`` tells, as the tables of a file; but for the secret, which it masks."""
    tree: dict[str, Any] = {}
    for setting in effective(settings):
        *tables, name = re.findall(r"[^.\[\]]+", setting.key)
        place = tree
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = setting.value
    del tree["admin"]["token"]
    return {**tree, "members": list(tree.get("members", {}).values())}


def _printable(invalid: SettingsInvalid) -> None:
    must(invalid.errors, "reasons")
    for error in invalid.errors:
        must(str(error).isprintable(), f"printable: {error!r}")


def check_environment(data: bytes) -> None:
    """Any variables are Settings, or SettingsInvalid whose every error names a variable or a setting; a
    value is never a traceback.
    """
    environ = {
        "SHADOWRELAY_NAME": "mx1.example.net",
        "SHADOWRELAY_RECEIVE__DEFAULT__LISTEN": "127.0.0.1:2525",
    }
    for entry in text_of(data).replace("\0", "").split("\x1e"):
        name, _, value = entry.partition("=")
        environ[f"SHADOWRELAY_{name}"] = value
    try:
        load_settings(None, environ)
    except SettingsInvalid as invalid:
        _printable(invalid)
        for error in invalid.errors:
            must(_names(error, environ), f"a name: {error!r}")


def _names(error: SettingError, environ: dict[str, str]) -> bool:
    """A variable that is wrong; or a setting that is missing, or does not go with another one."""
    table = re.match(r"\w*", error.key)
    return error.key in environ or error.source in environ or (table and table[0]) in Settings.model_fields


def check_override(data: bytes) -> None:
    """Any KEY=VALUE is applied and can be written as TOML, or is SettingsInvalid with printable errors."""
    try:
        changed = apply_overrides({"name": "mx1.example.net"}, text_of(data).split("\x1e"))
    except SettingsInvalid as error:
        _printable(error)
        return
    to_toml(changed)


def check_values(data: bytes) -> None:
    """Any text is a duration, size, address, network or domain that reads back as written, or a
    ValueError.
    """
    text = text_of(data)
    for parse, written in (
        (parse_host_port, str),
        (parse_dialled, str),
        (parse_network, str),
        (parse_domain_pattern, str),
        (parse_size, format_size),
        (parse_duration, format_duration),
    ):
        try:
            value = parse(text)
        except ValueError:
            continue
        must(parse(written(value)) == value, f"{parse.__name__} of {text!r}")  # type: ignore[operator]


def check_row(data: bytes) -> None:
    """Whatever strangers wrote, a row is one line of thirty fields that read back, none of them a formula."""
    fields = data.decode("utf-8", "surrogateescape").split("\x1e")
    columns = dict(
        zip(("message-subject", "sender-address", "recipient-address", "custom-data"), fields, strict=False)
    )
    line = render(columns, sequence=7, incarnation=_INCARNATION, database_id="d", server="mx1.example.net")
    line.encode()
    must(line.endswith("\r\n") and len(line.splitlines()) == 1, "one line")
    row = parse_row(line)
    must(row_identity(row) == (7, _INCARNATION), "its own identity")
    for name, text in columns.items():
        if name != "custom-data":
            must(row[name] == restore(neutralise(text)), name)
            must(neutralise(text)[:1] not in ("=", "+", "-", "@", "\t", "\r"), "no formula")


def check_any_row(data: bytes) -> None:
    """Any line is a row of thirty fields with an identity, or a ValueError."""
    try:
        row = parse_row(text_of(data))
        must(tuple(row) == COLUMNS, "thirty fields")
        row_identity(row)
    except ValueError:
        return


def check_left_over(data: bytes) -> None:
    """Whatever a crash left of a file, recovery seals whole rows only, the sealed file is sound, and
    twice is once.
    """
    name = LogName("mx1.example.net", _INCARNATION, 1)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(dir=_directory().name) as made:
        directory = Path(made)
        (directory / name.open).write_bytes(data)
        found = recover(directory, name.node, _NOW)
        for path in found.sealed:
            problems = set(verify_file(path).problems)
            must(problems <= {Problem.SEQUENCE_GAP, Problem.WRONG_RANGE, Problem.WRONG_FIELDS}, f"{problems}")
        again = recover(directory, name.node, _NOW)
        must(not (again.sealed or again.removed or again.set_aside), "twice is once")
        must(again.written == found.written, "the same rows are known to be written")


def check_closed_file(data: bytes) -> None:
    """Any closed file is reported on and never altered, and recovery of what was written does not fail on
    it.
    """
    name = LogName("mx1.example.net", _INCARNATION, 1)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(dir=_directory().name) as made:
        path = Path(made) / name.closed
        path.write_bytes(data)
        verify_file(path)
        recover(path.parent, name.node, _NOW)
        must(path.read_bytes() == data, "never altered")


def _rows(*sequences: int) -> bytes:
    columns = {"event-id": "RECEIVE", "message-subject": "=1,2", "custom-data": "S:Epoch=1"}
    return b"".join(
        render(columns, sequence=number, incarnation=_INCARNATION, database_id="d", server="mx1").encode()
        for number in sequences
    )


def _files() -> list[bytes]:
    head = header(_NOW).encode()
    footer = b"#Footer: first=1 last=2 rows=2 sha256=" + b"0" * 64 + b"\r\n"
    return [
        head,
        head + _rows(1, 2),
        head + _rows(1, 2) + footer,
        head + _rows(1, 2)[:-9],
        head + _rows(1) + b"\0" * 100 + b"\r\n" + _rows(2),
        head + _rows(2, 1) + footer + b"more",
    ]


_EXAMPLES = [
    _MINIMAL,
    _MINIMAL + b'[[members]]\nname = "mx2.example.net"\naddress = "[::1]:26"\nhost = "b"\n',
    _MINIMAL + b'shadow_heartbeat_frequency = "1h30m"\nrelay_networks = ["10.0.0.0/8"]\n',
    _MINIMAL + b'[routes.inside]\ndomains = ["*"]\nhost = "h"\nport = 25\n[peer]\nlisten = ":0"\n',
    b'data_dir = "~/data"\ndrain_timeout = "1.5ms"\n'
    + _MINIMAL
    + b'[peer]\nlisten = "[::1]:0"\nexternally_secured = ["10.0.0.0/8"]\n[tracking]\nmax_age = "2d"\n'
    + b'[[members]]\nname = "mx2.example.net"\naddress = "[::2]:26"\n'
    + b'[routes.a-b]\ndomains = ["*.test"]\nhost = "h"\n[admin]\ntoken = "0123456789abcdef"\n',
]


def check_users(data: bytes) -> None:
    """Any text is a file of users, the same if written and read again, or UsersInvalid without quotes."""
    text = text_of(data)
    try:
        users = parse_users(text)
    except UsersInvalid as error:
        must(re.fullmatch(r"line \d+ has [a-zA-Z0-9 -]+", str(error)), "of our own words alone")
        return
    must(parse_users(format_users(users)) == users, "the same again")
    must(all(is_name(name) for name in users), "names")


TARGETS = (
    Target(
        "users", check_users, lambda: [b"# all\nalice:$scrypt$ln=4,r=8,p=1$" + b"A" * 22 + b"$" + b"A" * 43]
    ),
    Target("settings-file", check_settings_file, lambda: _EXAMPLES),
    Target(
        "environment",
        check_environment,
        lambda: [
            b"SHADOW_HEARTBEAT_FREQUENCY=2m",
            b'MEMBERS=[{"name": "mx2.example.net"}]\x1eROUTES__INSIDE__DOMAINS=a,b',
            b"ADMIN__TOKEN_FILE=/dev/null\x1eRELAY_NETWORKS=[]\x1ePEER={}",
        ],
    ),
    Target(
        "override",
        check_override,
        lambda: [
            b"receive.default.max_protocol_errors=7",
            b"shadow_heartbeat_frequency=15s",
            b"routes.a.domains=['x']",
        ],
    ),
    Target(
        "values",
        check_values,
        lambda: [b"1h30m", b"2d", b"64MiB", b"[::1]:25", b"*.a.test", b"10.0.0.0/8", b"1.5s"],
    ),
    Target("row", check_row, lambda: [b'=1+1\x1ea,b"c\x1e\xff\xe2\x80\xa8\x1eS:Seq=9;S:Boot=x', b"'\x1e'='"]),
    Target("any-row", check_any_row, lambda: list(_rows(1).splitlines())),
    Target("left-over", check_left_over, _files),
    Target("closed-file", check_closed_file, _files),
)
