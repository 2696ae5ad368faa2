"""Options that several commands share, and how they end."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from shadowaudit.cli.progress import Shown
from shadowaudit.core.text import plain_uri, without_secrets
from shadowaudit.engine.port import EngineError, Log
from shadowaudit.interruption import INTERRUPTED, putting_away
from shadowaudit.logs.layout import NAME
from shadowaudit.logs.manifest import (
    DamagedStateError,
    Found,
    NoLogsError,
    NoneClosedError,
    OpenLog,
    find,
    not_read,
    open_logs,
    packed_logs,
    still_open,
)
from shadowaudit.printing import extra_of, unprintable

Function = TypeVar("Function", bound=Callable[..., Any])

USAGE = 2
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SERVER = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)+")
_URI = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+://")
_ENGINES = ("auto", "here", "spark", "sc://HOST:PORT")


def places(function: Function) -> Function:
    """DIR…: directories of logs, or files."""
    return click.argument("places", metavar="DIR...", nargs=-1, type=Place())(function)


def watching(function: Function) -> Function:
    """Whether it goes on."""
    options = (
        click.option("--watch", is_flag=True, help="Go on whenever a log is closed, until Ctrl-C."),
        click.option("--interval", default=10.0, show_default=True,
                     type=click.FloatRange(min=0, min_open=True),
                     help="Seconds between two looks, with --watch."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _known(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """An engine's name: before anything is read, or started."""
    if value in _ENGINES[:-1] or value.startswith("sc://"):
        return value
    raise click.BadParameter(f"no engine {value!r}: say {', '.join(_ENGINES)}", ctx, param)


def _amount(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Memory as Java writes it."""
    if re.fullmatch(r"[1-9]\d*[kmgt]", value, re.ASCII | re.IGNORECASE):
        return value
    raise click.BadParameter(f"{value!r} is no amount of memory: write it as 2g or 512m", ctx, param)


def engine(told: str) -> Callable[[Function], Function]:
    """How the work is done. ``told``: of auto, for the help of --engine."""
    return partial(_with_engine, told)


def _with_engine(told: str, function: Function) -> Function:
    options = (
        click.option("--engine", default="auto", metavar="|".join(_ENGINES), show_default=True,
                     callback=_known,
                     help="here: processes of this machine, without Java. Or Spark, or a Spark Connect "
                     f"server. auto: {told}"),
        click.option("--master", metavar="URL", help="Spark's master. [default: local[*]]"),
        click.option("--memory", default="2g", show_default=True, callback=_amount,
                     help="Memory of a local Spark."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


class Place(click.ParamType[Path | str]):
    """A path, or the URI of a place elsewhere as it is."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        del param, ctx
        text = os.fspath(value)
        return text if _URI.match(text) else Path(text.removeprefix("file://"))


class Moment(click.ParamType[int]):
    """A moment as ISO 8601; without a zone it is UTC. Milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time: write it as 2026-11-21 or 2026-11-21T10:00Z", param, ctx)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)


class Lost(click.ParamType[str]):
    """What was lost: a database, by its id as the log has it (a UUID in lower case), or all of a node, by its
    name: that has a dot.
    """

    name = "lost"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = str(value).strip().lower()
        if not _UUID.fullmatch(found) and not _SERVER.fullmatch(found):
            self.fail(
                f"{value!r} is no database id: write it as the audit names it, "
                "7f1f5f0c-4d2b-4f0e-9a3c-0b7f7f6a1d52; or the whole name of a node, mx1.example.net",
                param,
                ctx,
            )
        return found


@dataclass(frozen=True, slots=True)
class Places:
    """Where logs are: ``here``, and at URIs ``elsewhere``, of which only the closed logs are looked at."""

    here: tuple[Path, ...]
    elsewhere: tuple[str, ...]

    @classmethod
    def of(cls, named: Sequence[Path | str]) -> Places:
        here = tuple(one for one in named if isinstance(one, Path))
        return cls(here, tuple(one for one in named if isinstance(one, str)))

    def found(self, *, watch: bool = False, shown: Shown | None = None) -> list[Log]:
        """The closed logs. With ``watch`` a directory may have none yet, and ``shown`` tells that.

        Raises NoLogsError.
        """
        logs: list[Log] = []
        if self.here:
            logs += _awaited(self.here, shown) if watch else find(self.here)
        for place in self.elsewhere:
            try:
                reached = import_module("shadowaudit.spark.places")
                some = reached.find([place], reached.Choice(whole=not watch))
            except (OSError, ValueError) as problem:
                raise NoLogsError(unreached(place, problem)) from None
            if not some:
                raise NoLogsError(f"no closed tracking log (MSGTRK….LOG) at {plain_uri(place)}")
            logs += some
        return logs

    def open_logs(self) -> list[OpenLog]:
        """Logs that nodes still write."""
        return open_logs(self.here)


def unreached(place: str, problem: Exception) -> str:
    """The place, and why it cannot be read: in one line, without secrets."""
    return f"{plain_uri(place)}: {without_secrets(' '.join(str(problem).split()))}"


def _awaited(places: Sequence[Path], shown: Shown | None) -> list[Found]:
    logs: list[Found] = []
    for place in places:
        try:
            logs += find([place])
        except NoneClosedError as problem:
            if shown:
                shown.tell(f"waiting for logs: {problem}")
    return find([one.path for one in logs]) if logs else []


def tell_of_open_logs(shown: Shown, unread: Sequence[OpenLog]) -> None:
    """Say which logs nodes still write: whoever asks about the last minutes has to know."""
    if unread:
        shown.tell(f"note: {still_open(unread, datetime.now(UTC))}")


def tell_of_packed_logs(shown: Shown, places: Sequence[Path]) -> None:
    """Say that there are compressed ones, which nothing reads."""
    if packed := packed_logs(places):
        shown.tell(f"note: {not_read([Path(one).name for one in packed])}")


def refuse_packed_logs(places: Sequence[Path], known: Callable[[], Collection[str]]) -> None:
    """What is in a log that nothing reads would be missing without a word. ``known``: logs read before, or
    here unpacked. No two logs of ours have one name, wherever they lie. Raises NoLogsError.
    """
    packed = packed_logs(places)
    if packed:
        read = known()
        there = {*read, *(name for one in read if NAME.fullmatch(name := Path(one).name))}
        packed = [one for one in packed if not {one.rpartition(".")[0], Path(one).stem} & there]
    if packed:
        raise NoLogsError(not_read(packed))


@contextmanager
def told(
    interrupted: str = "interrupted: no verdict",
    *,
    what: str = "the audit",
    so: str = "this is no verdict",
) -> Iterator[None]:
    """Problems that the user can mend end with a sentence and status 2, not with a traceback.

    ``what`` may fail, and ``so`` says what that means.

    What nobody foresaw has its traceback, and status 2 as well: 1 would say that the promise was broken.
    """
    try:
        with putting_away():
            yield
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)  # everything is put away; threads of Spark would not let the interpreter end
    except (NoLogsError, EngineError, DamagedStateError) as problem:
        raise Refused(str(problem)) from None
    except FileExistsError as problem:
        raise Refused(f"{problem.filename or problem}: exists already") from None
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as problem:
        if isinstance(problem, OSError) and problem.filename:
            raise Refused(f"{problem.filename}: {problem.strerror}") from None
        if isinstance(problem, OSError) and (why := unprintable()):
            raise Refused(why) from None
        if extra := extra_of(problem):
            raise Refused(f"{what} needs {extra}") from None
        traceback.print_exc()
        name = type(problem).__name__
        raise Refused(f"{what} failed ({name}, see above): {so}") from problem


class Refused(click.ClickException):
    """What a user can mend, as a sentence: status 2."""

    exit_code = USAGE
