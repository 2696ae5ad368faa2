"""The settings of a mailbox service: options over environment over one TOML file over defaults."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationError
from pydantic_settings import SettingsConfigDict

from shadowmailbox.delivered_to import MOST_TRACKING, TOO_LONG
from shadowmailbox.server import TABLE_FILE
from shadowrelay.core.identifiers import ServerName
from shadowrelay.settings.description import SchemaNode, dotted
from shadowrelay.settings.errors import SettingError, SettingsInvalid
from shadowrelay.settings.loading import from_directory
from shadowrelay.settings.origins import Origin, OriginKind, origin_of
from shadowrelay.settings.outputs import Log
from shadowrelay.settings.schema import GivenSettings
from shadowrelay.settings.section import Section
from shadowrelay.settings.sources import EnvironmentSource, FileSource, Tree, merge, rewrite
from shadowrelay.settings.values import (
    Duration,
    FilePath,
    Format,
    Fqdn,
    HostPort,
    Integer,
    ListenAddress,
    Secret,
    Size,
    parse_dialled,
)
from shadowrelay.settings.wrong_values import error_of

PREFIX = "SHADOWRELAY_MAILBOX_"

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_TABLE = Path("/var/lib/shadowrelay-mailbox/delivered-to.sqlite")
_URL = re.compile(r"lmtp://(?:(/[^\0]*)|([^/\0]*))", re.ASCII)


@dataclass(frozen=True, slots=True)
class LmtpAddress:
    """A server that takes mail by LMTP: an address, or the path of a Unix socket."""

    at: HostPort | Path

    def __str__(self) -> str:
        return f"lmtp://{self.at}"


def parse_lmtp(value: object) -> LmtpAddress:
    """``lmtp://host:port`` or ``lmtp:///path/of/a/socket``; an IPv6 address has brackets."""
    if isinstance(value, LmtpAddress):
        return value
    found = _URL.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("not the URL of a store")
    return LmtpAddress(Path(found[1]) if found[1] else parse_dialled(found[2]))


def _tracked(value: timedelta) -> timedelta:
    if value > MOST_TRACKING:
        raise ValueError(TOO_LONG)
    return value


StoreUrl = Annotated[
    LmtpAddress,
    BeforeValidator(parse_lmtp),
    PlainSerializer(str, return_type=str),
    Format("lmtp://host:port, lmtp://[address]:port or lmtp:///path/of/a/socket"),
]


class MailboxAdmin(Section):
    listen: ListenAddress | None = Field(None, description="Where metrics and health are served.")
    token: Secret | None = Field(None, description="Bearer token that requests for metrics must carry.")


class MailboxSettings(GivenSettings):
    """All settings of a mailbox service. `load_mailbox_settings` reads them."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, validate_default=True)
    page: ClassVar[str] = "docs/reference/mailbox.md"

    hostname: Fqdn = Field(
        default_factory=lambda: ServerName(socket.getfqdn()),
        description="Its name in LHLO and in Received. Default: this host's.",
    )
    deliver: StoreUrl | None = Field(None, description="The store that mail is delivered to, by LMTP.")
    directory: FilePath | None = Field(
        None, description="Deliver into Maildirs below this directory instead; for labs."
    )
    table: FilePath = Field(
        default_factory=lambda data: (
            data["directory"] / TABLE_FILE if data.get("directory") is not None else _TABLE
        ),
        description="File of the DeliveredTo table. Large messages pass through its directory.",
    )
    inside: ListenAddress = Field(
        description="Where relays deliver by LMTP. It has no login: let only them in."
    )
    outside: ListenAddress | None = Field(
        None, description="Where to take mail by SMTP as well; with `directory` alone."
    )
    track_duplicates: Annotated[Duration, AfterValidator(_tracked)] = Field(
        timedelta(hours=1), ge=timedelta(), description="How long a delivery is remembered, at most 49d."
    )
    sweep_interval: Duration = Field(
        timedelta(seconds=60),
        ge=timedelta(milliseconds=100),
        le=_DAY,
        description="Time between two sweeps of the table, which delete what is no longer remembered.",
    )
    store_timeout: Duration = Field(
        timedelta(minutes=5),
        ge=_SECOND,
        le=timedelta(minutes=9),
        description="Longest wait for each answer of the store; relays wait 10 min for theirs.",
    )
    max_store_sessions: Integer = Field(20, ge=1, le=1000, description="Sessions with the store at a time.")
    max_message_size: Size = Field(
        128 * 2**20, ge=2**10, le=2**32, description="Largest message: more than the relays take."
    )
    max_header_size: Size = Field(
        2**20, ge=2**10, le=2**25, description="Largest header section: more than the relays take."
    )
    drain_timeout: Duration = Field(
        timedelta(seconds=10), ge=timedelta(), le=timedelta(hours=1), description="Time to finish at a stop."
    )
    ready_file: FilePath | None = Field(
        None, description="A file to write once mail is taken: JSON with the addresses."
    )
    admin: MailboxAdmin = Field(default_factory=MailboxAdmin, description="Its HTTP interface.")
    log: Log = Field(default_factory=Log, description="The diagnostic log.")


MAILBOX_ROOT = SchemaNode(MailboxSettings)


def load_mailbox_settings(
    path: Path | None, environ: Mapping[str, str], options: Mapping[str, str] | None = None
) -> MailboxSettings:
    """Read the settings of a mailbox service: options over environment over file over defaults.

    ``options``: keys of the top level (or ``admin.listen``, ``log.level``) to text. Variables begin with
    SHADOWRELAY_MAILBOX_. Relative paths in file and environment start at the directory of the file. Raises
    SettingsInvalid with every error found.
    """
    file = None if path is None else FileSource(MailboxSettings, path)
    if file and file.errors:
        raise SettingsInvalid(file.errors)
    beneath = file() if file else {}
    environment = EnvironmentSource(MailboxSettings, environ, beneath, prefix=PREFIX, root=MAILBOX_ROOT)
    base = path.absolute().parent if path else Path.cwd()
    tree = rewrite(
        merge(beneath, environment()),
        lambda node, value: from_directory(base, node, value),
        MAILBOX_ROOT,
    )
    tree, given = _with_options(tree, options or {})
    origins = {**(file.origins if file else {}), **environment.origins, **given}
    errors = list(environment.errors)
    try:
        settings = MailboxSettings(**tree)
    except ValidationError as error:
        errors += [
            error_of(detail, tree, origins, MAILBOX_ROOT)
            for detail in error.errors(include_url=False)
            if detail["type"] != "default_factory_not_called"
        ]
    else:
        errors += _cross_checks(settings, origins)
    if errors:
        raise SettingsInvalid(errors)
    return settings


def _with_options(tree: Tree, options: Mapping[str, str]) -> tuple[Tree, dict[str, Origin]]:
    given: Tree = {}
    origins = {}
    for key, text in options.items():
        *tables, last = key.split(".")
        inner = given
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = text
        origins[dotted((*tables, last))] = Origin(OriginKind.OPTION, OPTIONS[key])
    # The store that an option names takes the place of any other that is set.
    stores = {"deliver", "directory"}
    if stores & given.keys():
        tree = {key: value for key, value in tree.items() if key not in stores}
    return merge(tree, given), origins


OPTIONS: Mapping[str, str] = {
    "deliver": "--deliver",
    "directory": "--dir",
    "table": "--table",
    "inside": "--inside",
    "outside": "--outside",
    "hostname": "--hostname",
    "track_duplicates": "--track-duplicates",
    "sweep_interval": "--sweep-interval",
    "ready_file": "--ready-file",
    "admin.listen": "--admin",
    "log.level": "--log-level",
}
"""The options of the command, by the setting that each is."""


def _cross_checks(settings: MailboxSettings, origins: Mapping[str, Origin]) -> Iterator[SettingError]:
    def refuse(key: str, message: str) -> SettingError:
        return SettingError(key=key, message=message, source=str(origin_of(key, origins) or ""))

    if settings.deliver is None and settings.directory is None:
        yield SettingError(
            key="deliver",
            message="has to be set",
            allowed="deliver = the URL of a store, or directory = a directory for Maildirs",
        )
    if settings.deliver is not None and settings.directory is not None:
        yield refuse("directory", "beside deliver: mail has one store")
    if settings.outside is not None and settings.deliver is not None:
        yield refuse("outside", "with deliver: SMTP has one answer, and the store has one for each recipient")
    addresses = [settings.inside, settings.outside, settings.admin.listen]
    taken = [one for one in addresses if one is not None and one.port]
    for twice in {one for one in taken if taken.count(one) > 1}:
        yield SettingError(key="inside", message=f"{twice} is listened on twice")
