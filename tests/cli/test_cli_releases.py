"""The commands of this release look at nodes of other releases: their answers are in ``corpus/answers``.

``tests/e2e/record_answers.py`` records them. A node of another release may lack any field: the command says
what it is not told, and shows no zero in its place.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NotRequired, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import click
import pytest
from click.testing import CliRunner, Result
from pydantic import TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from shadowrelay.admin.access import Access
from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.openapi import operations
from shadowrelay.cli import main
from shadowrelay.core.identifiers import ServerName
from shadowrelay.workers.front import Supervising, build_front

KEPT = Path(__file__).parents[1] / "corpus" / "answers"
RELEASES = sorted(KEPT.glob("*.json"))
LAST = "915ad6af"
SANE = {0, 1, 2}
MOST_SLEEPS = 200

COMMANDS = (
    "drain --within 1s",
    "drain --end",
    "job list",
    "job show {job}",
    "job stop {job}",
    "member list",
    "message bounce {queued} --reason r --yes --no-wait",
    "message drop {queued} --yes",
    "message find {recipient}",
    "message list",
    "message list --state safety_net",
    "message list --state damaged",
    "message remove {queued} --reason r --dry-run",
    "message resume {queued} --reason r --yes --no-wait",
    "message retry {queued} --reason r --yes --no-wait",
    "message suspend {queued} --reason r --yes --no-wait",
    "message show {queued}",
    "message show {delivered}",
    "message trace {delivered}",
    "peer list",
    "peer list --workers",
    "peer retire mx3.lab.test --yes",
    "queue bounce outside --reason r --yes --no-wait",
    "queue list",
    "queue list --here",
    "queue list --workers",
    "queue remove outside --reason r --yes --no-wait",
    "queue resume outside --reason r",
    "queue retry outside --reason r --yes --no-wait",
    "queue show outside",
    "queue show outside --workers",
    "queue suspend outside --reason r",
    "queue suspensions",
    "redirect --stop",
    "redundancy off --reason r",
    "redundancy on --reason r",
    "redundancy show",
    "reload --dry-run",
    "reload --cluster --dry-run",
    "resubmit add --since 1h --until 1m --all --reason r --yes",
    "resubmit add --since 1h --until 1m --all --reason r --dry-run",
    "resubmit list",
    "resubmit now {request} mx3",
    "resubmit pause {request}",
    "resubmit remove {request}",
    "resubmit resume {request}",
    "resubmit show {request}",
    "safety-net list --since 1h",
    "safety-net show {delivered}",
    "scrub",
    "settings set unreadable_answer_retry_count 2 --reason r",
    "settings show",
    "settings unset unreadable_answer_retry_count --reason r",
    "shadow list",
    "shadow list --workers",
    "status",
    "status --here",
    "status --workers",
    "time confirm --reason r",
    "time show",
    "top --once --interval 0.2s",
    "top --once --interval 0.2s --workers",
)

NOT_OF_ANSWERS = {"member announce"}
"""Commands that need a file of their own, and print one word of the answer."""


@dataclass(slots=True)
class OldNode:
    """A node that gives recorded answers. ``asked``: what of them was asked for."""

    named: Mapping[str, str]
    answers: dict[str, tuple[int, Any]]
    url: str = ""
    asked: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Told before each command."""

    def run(self, command: str, *more: str) -> Result:
        words = [*command.format(**self.named).split(), *more, "--admin", self.url]
        self.asked.clear()
        self.begin()
        return CliRunner(env={"COLUMNS": "300"}).invoke(main, words)


class _Answering(BaseHTTPRequestHandler):
    node: OldNode

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        of_all = " of all nodes" if body.get("cluster") is True else ""
        place = f"{self.command} {self.path.partition('?')[0]}{of_all}"
        status, said = self.node.answers.get(place, (404, {"error": f"there is nothing at {self.path}"}))
        self.node.asked.add(place)
        told = said if isinstance(said, str) else json.dumps(said)
        self.send_response(status)
        self.send_header("content-length", str(len(told.encode())))
        self.end_headers()
        self.wfile.write(told.encode())

    do_POST = do_DELETE = do_GET

    def log_message(self, *words: object) -> None: ...


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest) -> Iterator[OldNode]:
    with answering(request.param) as node:
        yield node


@pytest.fixture(scope="module")
def last() -> Iterator[OldNode]:
    with answering(KEPT / f"{LAST}.json") as node:
        yield node


@contextmanager
def answering(recording: Path) -> Iterator[OldNode]:
    """A server that answers as was recorded."""
    told = json.loads(recording.read_text("utf-8"))
    answers = {place: (status, said) for place, (status, said) in told["answers"].items()}
    node = OldNode(told["named"], answers)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answering", (_Answering,), {"node": node}))
    node.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield node
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that wait are let go on at once; one that waits for ever fails."""
    slept = [0.0, 0]
    monotonic = time.monotonic

    def sleep(seconds: float) -> None:
        slept[:] = slept[0] + seconds, slept[1] + 1
        if slept[1] > MOST_SLEEPS:
            raise RuntimeError("it waits for ever")

    def begin() -> None:
        slept[:] = 0.0, 0

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + slept[0])
    monkeypatch.setattr(OldNode, "begin", staticmethod(begin))


def sane(done: Result, what: str) -> None:
    """The command ended by itself, with a status that says how."""
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"{what}: {done.exception!r}") from done.exception
    assert done.exit_code in SANE, f"{what}: exit {done.exit_code}"


def commands_of(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from commands_of(found, (*path, name))
    elif any("--admin" in one.opts for one in command.params):
        yield " ".join(path)


def test_every_command_that_looks_at_a_node_is_run_against_old_ones():
    run = {" ".join(words[:2]) for words in map(str.split, COMMANDS)} | {one.split()[0] for one in COMMANDS}
    assert [one for one in commands_of(main) if one not in run | NOT_OF_ANSWERS] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_understands_a_node_of_an_old_release(old: OldNode, command: str):
    for more in ((), ("--json",)):
        done = old.run(command, *more)
        sane(done, command)
        if more and done.exit_code == 0 and "--dry-run" not in command:
            assert done.stdout.lstrip().startswith(("{", "[")) or not done.stdout.strip()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The fields of an answer: of a list, those of its first item."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from leaves(value[0], (*path, 0))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """The answer with another value there, in every item of a list; without the field if ``to`` is None."""
    found = deepcopy(value)
    _change(found, path, to)
    return found


def _change(value: Any, path: tuple[Any, ...], to: Any) -> None:
    if path[0] == 0:
        for one in value:
            if isinstance(one, dict):
                _change(one, path[1:], to)
    elif not isinstance(value, dict) or path[0] not in value:
        return
    elif len(path) > 1:
        if value[path[0]] is not None:
            _change(value[path[0]], path[1:], to)
    elif to is None:
        del value[path[0]]
    else:
        value[path[0]] = to


def is_a_count(value: Any, path: tuple[Any, ...]) -> bool:
    for step in path:
        value = value[step]
    return isinstance(value, int) and not isinstance(value, bool)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_no_zero_for_a_count_that_a_node_does_not_tell(last: OldNode, command: str):
    old = last
    before = old.run(command)
    sane(before, command)
    whole = dict(old.answers)
    false = []
    try:
        for place in sorted(old.asked):
            status, answer = whole.get(place, (404, None))
            if status != 200 or not isinstance(answer, dict):
                continue
            for path in leaves(answer):
                old.answers[place] = status, changed(answer, path, None)
                without = old.run(command)
                sane(without, f"{command} without {path} of {place}")
                if without.stderr == before.stderr or not is_a_count(answer, path):
                    continue  # it may be away: it stands in a map, or is optional
                if "Error: " in without.stderr:
                    continue
                shown = []
                for value in (4711, 0):
                    old.answers[place] = status, changed(answer, path, value)
                    shown.append(old.run(command).stdout)
                if shown[0] != shown[1] == without.stdout:
                    false.append((place, path))
            old.answers[place] = status, answer
    finally:
        old.answers.clear()
        old.answers.update(whole)
    assert not false


def gone(hint: Any, value: Any, path: str = "") -> Iterator[str]:
    """The fields of a recorded answer that a model of today has no more, or with another type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Annotated, NotRequired):
        yield from gone(args[0], value, path)
    elif is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        if not isinstance(value, dict):
            yield f"{path} is no model"
            return
        for key, inner in value.items():
            if key in hints:
                yield from gone(hints[key], inner, f"{path}.{key}")
            else:
                yield f"{path}.{key} is gone"
    elif origin in (list, Sequence) and isinstance(value, list):
        for one in value:
            yield from gone(args[0], one, f"{path}[]")
    elif origin in (Union, UnionType):
        yield from min((list(gone(one, value, path)) for one in args), key=len)
    else:
        try:
            TypeAdapter(hint).validate_python(value, strict=True)
        except ValidationError:
            yield f"{path} is no {hint} any more: {value!r}"


GONE: set[str] = set()
"""Fields that were taken out on purpose, since an older command shows what it says without."""


@pytest.mark.parametrize("recording", RELEASES, ids=lambda path: path.stem)
def test_every_field_that_an_old_command_read_is_still_told_with_its_type(recording: Path):
    front, _ = build_front(
        ServerName("mx1"), Access(), cast(Supervising, SimpleNamespace(workers=list)), asyncio.Event()
    )
    described = operations(front.routes) | operations(build_app(cast(RunningNode, None)).routes)
    patterns = [
        (method, re.compile(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(path))), one.answer)
        for (method, path), one in described.items()
    ]
    missed, compared = set(), 0
    for place, (status, said) in json.loads(recording.read_text("utf-8"))["answers"].items():
        method, path = re.sub("/workers/[0-9]+(?=/)", "", place.removesuffix(" of all nodes")).split(" ")
        if status != 200 or not isinstance(said, dict):
            continue
        fits = [one for of, each, one in patterns if of == method and each.fullmatch(unquote(path))]
        if not fits:
            missed.add(f"{method} {path} is gone")
        model = (fits or [dict[str, Any]])[0]
        missed |= {f"{method} {path.split('/')[3]}{one}" for one in gone(model, said)}
        compared += 1
    assert compared > 25
    assert missed - GONE == set()
