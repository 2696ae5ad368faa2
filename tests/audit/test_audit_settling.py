"""A verdict that goes on from what is settled is that of an audit of all files at once: always."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import test_audit_exchange as exchange
from auditing import Auditor
from click.testing import CliRunner, Result
from pyarrow import parquet
from resealing import event, rows
from resealing import logs as files_of

from shadowaudit.cli import main
from shadowaudit.core.verdict import Verdict
from shadowaudit.engine import pieces, totals
from shadowaudit.engine import settle as settling
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.state import State
from shadowlab.generate.cluster import BEGIN, EVERY, generate
from shadowlab.generate.stories import FAULTS, FILE_FAULTS


class Heard:
    """What an audit says besides."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.steps: list[str] = []

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        self.steps.append(text)
        yield

    def tell(self, sentence: str) -> None:
        self.told.append(sentence)


def rows_of(path: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.items()) for row in parquet.read_table(path).to_pylist())


def same(one: Verdict, other: Verdict, out: Path, other_out: Path) -> None:
    """Two audits found the same, to the last row of every table."""
    told = [verdict.as_dict() for verdict in (one, other)]
    for words in told:
        del words["timings"]
    assert told[0] == told[1]
    for name in ("messages", "findings", "violations", "stats", "copies"):
        assert rows_of(out / f"{name}.parquet") == rows_of(other_out / f"{name}.parquet"), name
    for name in ("findings", "violations"):
        lines = [sorted((where / f"{name}.csv").read_bytes().split(b"\r\n")) for where in (out, other_out)]
        assert lines[0] == lines[1]


def mix(chance: random.Random, *, spoilt: bool) -> dict[str, int]:
    faults = chance.sample(sorted(FAULTS), chance.randrange(len(FAULTS)))
    wanted = {name: chance.randrange(1, 6) for name in faults}
    if spoilt:
        wanted |= dict.fromkeys(chance.sample(sorted(FILE_FAULTS), 2), 1)
    return wanted


def batches(files: list[Path], chance: random.Random) -> Iterator[list[Path]]:
    """All of them in any order, a few at a time."""
    left = chance.sample(files, len(files))
    while left:
        many = chance.choice([1, 1, 2, 5, len(files) // 2])
        yield left[:many]
        left = left[many:]


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(3, 16))])
def test_files_in_any_order_and_in_any_batches_give_the_verdict_of_all_at_once(
    here: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(settling, "_BUCKET", chance.choice([50, 300, 150_000]))
    monkeypatch.setattr(pieces, "_SMALL", chance.choice([40, 1000]))
    monkeypatch.setattr(pieces, "_MANY", chance.choice([1, 3, 8]))
    truth = tmp_path / "truth"
    generate(
        truth,
        messages=200,
        faults=mix(chance, spoilt=seed % 4 == 3),
        seed=seed,
        file_size=chance.choice([3000, 8000, 20_000]),
    )
    logs, state = tmp_path / "logs", tmp_path / "state"
    for batch in batches(files_of(truth), chance):
        arrive(batch, truth, logs)
        heard = Heard()
        question = asked(chance, logs)
        found = here(logs, state=state, out=tmp_path / "out", progress=heard, **question)
        assert not any("cannot be used" in sentence for sentence in heard.told)
        if chance.random() < 0.2 or len(files_of(logs)) == len(files_of(truth)):
            whole = here(logs, out=tmp_path / "whole", **question)
            same(found, whole, tmp_path / "out", tmp_path / "whole")


def arrive(files: list[Path], source: Path, target: Path) -> None:
    for path in files:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)


def asked(chance: random.Random, logs: Path) -> dict[str, Any]:
    """What one may ask of the same logs: mostly nothing more than a verdict."""
    question: dict[str, Any] = {"allow_open": chance.random() < 0.3}
    if chance.random() < 0.3:
        question["lost"] = [digest_file(chance.choice(files_of(logs)))[0].database]
    if chance.random() < 0.15:
        question[chance.choice(["since", "until"])] = BEGIN + chance.randrange(200) * EVERY
    return question


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    faults = {"lost": 2, "duplicate": 2, "exposed": 2, "in-transit": 2}
    generate(tmp_path / "logs", messages=150, faults=faults, seed=5, file_size=8000)
    return tmp_path / "logs"


def is_that_of_all_at_once(here: Auditor, logs: Path, state: Path, base: Path) -> Heard:
    """The verdict with that state, compared; what was said."""
    heard = Heard()
    found = here(logs, state=state, out=base / "out", progress=heard)
    same(found, here(logs, out=base / "whole"), base / "out", base / "whole")
    return heard


def test_what_is_settled_is_neither_merged_nor_written_again(
    here: Auditor, tmp_path: Path, faulty: Path
) -> None:
    last = files_of(faulty)[-1]
    shutil.move(last, tmp_path / last.name)
    state = tmp_path / "state"
    is_that_of_all_at_once(here, faulty, state, tmp_path)
    before = {path.stat().st_ino: path for path in (tmp_path / "out" / "messages.parquet").glob("settled-*")}
    kept = {path.stat().st_ino for path in (state / "settled").iterdir()}
    assert before, "something was settled"
    assert before.keys() <= kept, "and is there once"
    assert "Merging what is new" not in is_that_of_all_at_once(here, faulty, state, tmp_path).steps
    shutil.move(tmp_path / last.name, last)
    heard = is_that_of_all_at_once(here, faulty, state, tmp_path)
    assert "Merging what is new" in heard.steps
    after = {path.stat().st_ino for path in (tmp_path / "out" / "messages.parquet").glob("settled-*")}
    assert before.keys() < after


@pytest.fixture
def row_by_row(tmp_path: Path) -> Path:
    """Each row in a file of its own."""
    faults = {"duplicate": 1}
    generate(tmp_path / "logs", messages=8, faults=faults, seed=1, file_size=1)
    return tmp_path / "logs"


def files_about(message: str, name: str, logs: Path) -> list[Path]:
    """Files with such a row about that message, the oldest first."""
    first = {path: rows(path)[0] for path in files_of(logs)}
    found = [path for path, row in first.items() if message.encode() in row and event(row) == name]
    return sorted(found, key=first.__getitem__)


@pytest.mark.slow
def test_curves_that_grow_longer_count_what_was_settled_before_at_its_time(
    here: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: Path
) -> None:
    monkeypatch.setattr(totals, "CURVE_POINTS", 2)  # four seconds are a long time
    monkeypatch.setattr(pieces, "_MANY", 100)  # none is counted again
    truth, logs = faulty.rename(tmp_path / "truth"), tmp_path / "logs"
    for path in sorted(files_of(truth), key=lambda path: digest_file(path)[0].ends):
        arrive([path], truth, logs)
        found = here(logs, state=tmp_path / "state", out=tmp_path / "out")
    assert len([*(tmp_path / "state" / "settled").glob("*-*.json")]) > 1
    same(found, here(logs, out=tmp_path / "whole"), tmp_path / "out", tmp_path / "whole")


def test_a_second_delivery_that_is_told_late_opens_its_message_again(
    here: Auditor, tmp_path: Path, row_by_row: Path
) -> None:
    (message,) = json.loads((row_by_row / "truth.json").read_text("utf-8"))["found"]
    late = files_about(message, "DELIVER", row_by_row)[-1]
    shutil.move(late, tmp_path / late.name)
    state, out = tmp_path / "state", tmp_path / "out"
    here(row_by_row, state=state, out=out)
    assert message in settled_in(out)
    shutil.move(tmp_path / late.name, late)
    is_that_of_all_at_once(here, row_by_row, state, tmp_path)
    assert message not in settled_in(out)
    assert len(settled_in(out)) == 7
    assert json.loads((out / "verdict.json").read_text("utf-8"))["classes"]["duplicate"]["count"] == 1


def settled_in(out: Path) -> set[str]:
    """Messages in the pieces that are the state's."""
    pieces = (out / "messages.parquet").glob("settled-*")
    return {name for path in pieces for name in parquet.read_table(path)["id"].to_pylist()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 5))])
def test_rows_in_any_order_one_at_a_time_give_the_verdict_of_all_at_once(
    here: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(pieces, "_MANY", 2)
    monkeypatch.setattr(pieces, "_SMALL", 3)
    faults = dict.fromkeys(chance.sample(sorted(FAULTS), 5), 1)
    generate(tmp_path / "truth", messages=9, faults=faults, seed=seed, file_size=1)
    logs, state = tmp_path / "logs", tmp_path / "state"
    for path in chance.sample(files_of(tmp_path / "truth"), len(files_of(tmp_path / "truth"))):
        arrive([path], tmp_path / "truth", logs)
        if chance.random() < 0.2:
            assert is_that_of_all_at_once(here, logs, state, tmp_path).told == []
        else:
            here(logs, state=state, out=tmp_path / "out")
    is_that_of_all_at_once(here, logs, state, tmp_path)


@pytest.mark.slow
def test_an_exchange_log_that_grows_is_merged_as_often_as_it_is_read_and_nothing_else_is(
    here: Auditor, tmp_path: Path
) -> None:
    def told(*numbers: int, hour: int) -> list[str]:
        return [
            exchange.row(2016, name, number, date_time=f"2026-11-21T{hour}:00:{second:02}.000Z")
            for second, number in enumerate(numbers)
            for name in (["RECEIVE", "DELIVER"] if number // 10 == hour - 10 else ["DELIVER"])
        ]

    logs, state = tmp_path / "logs", tmp_path / "state"
    exchange.log(logs, 2016, told(1, 2, 3, 4, hour=10), name="MSGTRK2026112110-1.LOG")
    exchange.log(logs, 2016, told(1, hour=11), name="MSGTRKMD2026112109-1.LOG")
    newest = told(11, 12, 2, 13, 14, 12, hour=11)
    for end in range(1, len(newest) + 1):
        exchange.log(logs, 2016, newest[:end], name="MSGTRK2026112111-1.LOG")
        assert is_that_of_all_at_once(here, logs, state, tmp_path).told == []
    assert len(settled_in(tmp_path / "out")) == 2, "3 and 4: of the others more may come"
    exchange.log(logs, 2016, told(21, hour=12), name="MSGTRK2026112112-1.LOG")
    assert is_that_of_all_at_once(here, logs, state, tmp_path).told == []
    assert len(settled_in(tmp_path / "out")) == 5


SPOILT: dict[str, Callable[[Path], object]] = {
    "a piece is cut short": lambda place: cut(next(place.glob("*.parquet"))),
    "a piece is gone": lambda place: next(place.glob("*.states")).unlink(),
    "a piece was written again": lambda place: os.utime(next(place.glob("*.keys"))),
    "counts are gone": lambda place: next(place.glob("*-*.json")).unlink(),
    "the list is cut short": lambda place: cut(place / "settled.json"),
    "another version wrote it": lambda place: edited(place / "settled.json", "version", "s0"),
}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def edited(path: Path, name: str, value: str) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {name: value}), "utf-8")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", SPOILT)
def test_what_cannot_be_used_is_made_again_and_said_so(
    here: Auditor, tmp_path: Path, faulty: Path, what: str
) -> None:
    state = tmp_path / "state"
    is_that_of_all_at_once(here, faulty, state, tmp_path)
    SPOILT[what](state / "settled")
    heard = is_that_of_all_at_once(here, faulty, state, tmp_path)
    (told,) = heard.told
    assert "everything is merged again" in told
    assert is_that_of_all_at_once(here, faulty, state, tmp_path).told == []


@pytest.mark.slow
def test_when_a_log_was_changed_nothing_that_was_settled_is_used(
    here: Auditor, tmp_path: Path, faulty: Path
) -> None:
    state = tmp_path / "state"
    is_that_of_all_at_once(here, faulty, state, tmp_path)
    path = files_of(faulty)[3]
    path.write_bytes(path.read_bytes().replace(rows(path)[5], b""))
    heard = is_that_of_all_at_once(here, faulty, state, tmp_path)
    assert "a file that was merged was changed since" in heard.told[0]


@pytest.mark.slow
def test_logs_that_an_older_version_read_are_read_again_and_those_that_are_gone_are_told(
    here: Auditor, tmp_path: Path, faulty: Path
) -> None:
    state = tmp_path / "state"
    is_that_of_all_at_once(here, faulty, state, tmp_path)
    for path in state.glob("v*-*"):
        path.rename(path.with_name(f"v1-{path.name.partition('-')[2]}"))
    (state / ".half-written").touch()
    os.utime(state / ".half-written", (0, 0))
    gone = files_of(faulty)[-1]
    gone.unlink()
    first, second = (is_that_of_all_at_once(here, faulty, state, tmp_path).told for _ in range(2))
    assert first[0].startswith("1 logs in the state were read by another version")
    assert "everything is merged again" in first[1]
    assert second == first[:1]
    assert len([*state.glob("v1-*.json")]) == 1, "what was read again is there once"
    assert not (state / ".half-written").exists()


@pytest.mark.slow
def test_a_log_that_moves_to_an_archive_is_settled_as_before(
    here: Auditor, tmp_path: Path, faulty: Path
) -> None:
    state = tmp_path / "state"
    is_that_of_all_at_once(here, faulty, state, tmp_path)
    archive = faulty / "archive"
    archive.mkdir()
    for path in files_of(faulty)[:6]:
        shutil.copy2(path, archive / path.name)
    heard = Heard()
    assert here(faulty, state=state, out=tmp_path / "out", progress=heard).evidence.notes
    assert heard.told == []
    for path in files_of(faulty):
        if (archive / path.name).exists() and path.parent != archive:
            path.unlink()
    heard = Heard()
    found = here(faulty, state=state, out=tmp_path / "out", progress=heard)
    assert heard.told == []
    assert (found.status, found.classes) == (1, here(faulty, out=tmp_path / "whole").classes)
    assert found.evidence.gaps == ()


class Killed(BaseException):
    """The process ends at that moment."""


@pytest.mark.slow
def test_whenever_it_is_killed_the_next_verdict_is_right_and_nothing_is_left_over(
    here: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: Path
) -> None:
    monkeypatch.setattr(pieces, "_MANY", 1)
    truth, logs, state = faulty.rename(tmp_path / "truth"), tmp_path / "logs", tmp_path / "state"
    files = files_of(truth)
    arrive(files[2:], truth, logs)
    here(logs, state=state, out=tmp_path / "out")
    shutil.copytree(state, tmp_path / "before", copy_function=shutil.copy2)
    arrive(files[:2], truth, logs)
    replace, killed = Path.replace, 0
    while True:
        left = killed

        def kill(path: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return replace(path, target)

        shutil.rmtree(state)
        shutil.copytree(tmp_path / "before", state, copy_function=shutil.copy2)
        monkeypatch.setattr(Path, "replace", kill)
        try:
            here(logs, state=state, out=tmp_path / "out")
            break
        except Killed:
            killed += 1
        finally:
            monkeypatch.setattr(Path, "replace", replace)
        found = here(logs, state=state, out=tmp_path / "out")
        if killed % 5 == 0:
            same(found, here(logs, out=tmp_path / "whole"), tmp_path / "out", tmp_path / "whole")
        store = State(state).settlement
        settled = store.load()
        assert settled is not None
        kept = {f"{one.name}{ending}" for one in (*settled.finished, *settled.open) for ending in one.files}
        assert {path.name for path in store.directory.iterdir()} == kept | {"settled.json"}
    assert killed > 10, "it was killed at every file that it wrote"


@pytest.mark.slow
def test_several_may_work_with_one_state_at_a_time(here: Auditor, tmp_path: Path, faulty: Path) -> None:
    whole = here(faulty, out=tmp_path / "whole")
    for path in files_of(faulty):
        here(path, state=tmp_path / "state", out=tmp_path / "out")
        if path == files_of(faulty)[8]:
            break

    def one(number: int) -> Verdict:
        return here(faulty, state=tmp_path / "state", out=tmp_path / f"out{number}")

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(one, range(4))):
            same(found, whole, tmp_path / f"out{number}", tmp_path / "whole")


def spoilt(state: Path, what: str) -> Path:
    """A file of the state, of a log that has messages."""
    path = max(state.glob("v6-*.parquet"), key=lambda one: one.stat().st_size)
    match what:
        case "gone":
            path.unlink()
        case "cut short":
            cut(path)
        case "facts":
            path = path.with_suffix(".json")
            cut(path)
    return path


@pytest.mark.parametrize("what", ["gone", "cut short", "facts"])
def test_what_was_kept_of_a_log_and_is_damaged_is_read_again_from_the_log(
    here: Auditor, tmp_path: Path, faulty: Path, what: str
) -> None:
    state = tmp_path / "state"
    is_that_of_all_at_once(here, faulty, state, tmp_path)
    path = spoilt(state, what)
    assert is_that_of_all_at_once(here, faulty, state, tmp_path).told == []
    assert path.exists()


def verified(state: Path) -> Result:
    return CliRunner().invoke(main, ["verify", "--state", str(state), "--out", str(state.parent / "asked")])


@pytest.mark.parametrize("what", ["gone", "cut short"])
def test_what_was_kept_of_a_log_and_is_damaged_is_named_where_the_log_is_not_given(
    here: Auditor, tmp_path: Path, faulty: Path, what: str
) -> None:
    state = tmp_path / "state"
    here(faulty, state=state, out=tmp_path / "out")
    path = spoilt(state, what)
    said = verified(state)
    assert (said.exit_code, "Traceback" in said.output) == (2, False), said.output
    assert f"{path} is missing or damaged" in said.output
    path.with_suffix(".json").unlink()  # as it says
    assert verified(state).exit_code in (1, 3)


def test_damage_in_the_middle_of_a_table_is_noticed_and_named(
    here: Auditor, tmp_path: Path, faulty: Path
) -> None:
    state = tmp_path / "state"
    here(faulty, state=state, out=tmp_path / "out")
    path = max(state.glob("v6-*.parquet"), key=lambda one: one.stat().st_size)
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 4] ^= 0xFF
    path.write_bytes(octets)
    shutil.rmtree(state / "settled")
    said = verified(state)
    assert (said.exit_code, "Traceback" in said.output) == (2, False), said.output
    assert f"{path} cannot be read" in said.output


def test_facts_that_cannot_be_read_and_whose_log_is_not_given_are_told(
    here: Auditor, tmp_path: Path, faulty: Path
) -> None:
    state = tmp_path / "state"
    here(faulty, state=state, out=tmp_path / "out")
    path = spoilt(state, "facts")
    assert f"{path} cannot be read, and the log that it tells of does not count" in verified(state).output
