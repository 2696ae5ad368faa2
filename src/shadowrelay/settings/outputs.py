"""Defines the settings of what a node shows: its HTTP interface, its tracking log and its diagnostic log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from shadowrelay.core.operating import Scope
from shadowrelay.settings.section import Section
from shadowrelay.settings.values import (
    Duration,
    FilePath,
    Flag,
    HostPort,
    Label,
    ListenAddress,
    Secret,
    Size,
    WebAddress,
)

if TYPE_CHECKING:
    from shadowrelay.admin.access import Token

_SECOND = timedelta(seconds=1)


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """``auto``: for people on a terminal, else JSON."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class TokenScope(StrEnum):
    """What a token is for: to look, or to act as well."""

    READ = "read"
    OPERATE = "operate"


class AdminToken(Section):
    """A token that is one person's, or one program's."""

    name: Label = Field(description="Who has it: the operator in logs and in the tracking log.")
    scope: TokenScope = Field(description="`read`: may look. `operate`: may change everything, too.")
    file: FilePath = Field(
        description="A file with the token alone, of at least 16 characters; read again when it changes."
    )


class Admin(Section):
    listen: ListenAddress = Field(HostPort("127.0.0.1", 8025), description="HTTP API, console, and metrics.")
    token: Secret | None = Field(
        None, description="A bearer token that may operate; whoever has it says who he is."
    )
    tokens: list[AdminToken] = Field([], description="Bearer tokens, each with a name and a scope.")
    audit_verdict: FilePath | None = Field(
        None, description="The `verdict.json` of the last audit, for the console's first screen."
    )


class Tracking(Section):
    directory: FilePath = Field(description="Directory of the log. Default: `tracking` in `data_dir`.")
    max_file_size: Size = Field(10 * 10**6, ge=10**4, le=4 * 10**9, description="A larger file is rolled.")
    max_file_age: Duration = Field(
        timedelta(hours=1), ge=_SECOND, le=timedelta(days=30), description="An older file is rolled."
    )
    max_directory_size: Size = Field(
        1000 * 10**6, ge=10**5, le=10**13, description="Beyond it the oldest files are deleted."
    )
    max_age: Duration = Field(
        timedelta(days=30), ge=_SECOND, le=timedelta(days=3650), description="Older files are deleted."
    )


class TraceSettings(Section):
    endpoint: WebAddress | None = Field(
        None, description="Where a collector takes OTLP over HTTP; without it there are no traces."
    )
    addresses: Flag = Field(False, description="Whether spans have addresses and subjects.")


class Log(Section):
    level: LogLevel = Field(LogLevel.INFO, description="Least severity that is written to standard error.")
    format: LogFormat = Field(LogFormat.AUTO, description="`auto` is `console` on a terminal, else `json`.")


def tokens_of(admin: Admin) -> Iterator[Token]:
    """The tokens of the admin address."""
    from shadowrelay.admin.access import FixedToken, TokenFile  # here: settings alone need none of it

    if admin.token is not None:
        yield FixedToken(admin.token.get_secret_value())
    for token in admin.tokens:
        yield TokenFile(token.name, Scope(token.scope.value), token.file)
