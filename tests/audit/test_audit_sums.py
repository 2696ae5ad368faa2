"""The sums that clear a message: each of them is there, and each alone makes a suspect of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from auditing import Auditor
from plainly import judged
from resealing import event, resealed, rows
from resealing import logs as files_of

from shadowaudit.core.events import entries_of
from shadowaudit.core.facts import FileFacts
from shadowaudit.core.findings import Class
from shadowaudit.core.fingerprint import digest, key_of, weights
from shadowaudit.core.judge import LATE_DISCARD
from shadowaudit.core.verdict import VIOLATED
from shadowaudit.engine.messages import Messages, Origins
from shadowaudit.logs import steps
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.fold import SCHEMA
from shadowaudit.logs.groups import NONE_GREATEST, NONE_LEAST
from shadowlab.generate.cluster import generate
from shadowlab.generate.message import OWNER, Message
from shadowlab.generate.stories import FAULTS


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=40, faults={}, seed=5)
    return tmp_path / "logs"


def test_a_message_that_snapshots_list_while_it_waits_is_no_suspect(
    here: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node that deletes old logs could not be asked about ordinary mail again."""

    def story(m: Message) -> None:
        m.accepted()
        told = {"custom": ";S:Snapshot=hourly;S:Role=primary", "source": "BOOTLOADER"}
        m.add(20, OWNER, m.row("LOAD", **told))
        m.deliver(40)
        m.discard(800)

    monkeypatch.setitem(FAULTS, "listed", (story, ()))
    generate(tmp_path / "logs", messages=20, faults={"listed": 5}, seed=1)
    assert sum(event(row) == "LOAD" for path in files_of(tmp_path / "logs") for row in rows(path)) > 5
    assert here(tmp_path / "logs").totals["suspects"] == 0


def states(directory: Path) -> pa.Table:
    return pa.concat_tables([digest_file(path)[1] for path in files_of(directory)])


def summed(directory: Path, message: str) -> dict[str, int]:
    high, low = key_of(message)
    found = [row for row in states(directory).to_pylist() if (row["high"], row["low"]) == (high, low)]
    return {name: sum(row[name] for row in found) for name in ("owed", "balance", "residue", "ended")}


def test_what_came_in_and_did_not_go_out_is_the_balance_of_a_message(logs: Path) -> None:
    path, row = next((path, row) for path in files_of(logs) for row in rows(path) if event(row) == "DELIVER")
    message, count = row.split(b",")[11].decode(), int(row.split(b",")[15])
    assert summed(logs, message) | {"ended": 0} == {"owed": 0, "balance": 0, "residue": 0, "ended": 0}
    path.write_bytes(path.read_bytes().replace(row, b""))
    database = digest_file(path)[0].database
    named = row.partition(b"S:Recipients=")[2].split(b",")[0].split(b";")[0].decode()
    missing = [int(one) for one in named.split("+")] if named else [*range(1, count + 1)]
    found = summed(logs, message)
    assert found["residue"] == count
    addresses = row.split(b",")[12].decode().split(";")
    assert found["owed"] == weights(missing, addresses)
    assert found["balance"] == weights(missing, addresses, digest(database))


def test_a_holder_that_lets_go_of_other_recipients_than_it_held_is_seen_in_the_balance_alone(
    logs: Path,
) -> None:
    path, row = next(
        (path, row) for path in files_of(logs) for row in rows(path) if event(row) == "HADISCARD"
    )
    message, count = row.split(b",")[11].decode(), int(row.split(b",")[15])
    others = "+".join(str(number) for number in range(2, count + 2)).encode()
    place = row.index(b",,", row.index(b"S:Seq="))
    path.write_bytes(path.read_bytes().replace(row, row[:place] + b";S:Recipients=" + others + row[place:]))
    found = summed(logs, message)
    assert (found["owed"], found["residue"]) == (0, 0)
    assert found["balance"] != 0
    resealed(logs)
    verdict, classes = judged(logs)
    assert Class.INCONSISTENT in classes[message]
    assert verdict.status == VIOLATED


def test_digests_do_not_make_each_row_one_of_a_kind(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What custom-data says otherwise is taken apart once for all rows that say it: memory stays as it is."""
    parsed: list[str] = []

    def counting(text: str) -> dict[str, str]:
        parsed.append(text)
        return entries_of(text)

    monkeypatch.setattr(steps, "entries_of", counting)
    found = [digest_file(path)[0] for path in files_of(logs)]
    assert not any("Content=" in text for text in parsed if "Seq=" not in text)
    assert len(parsed) < sum(one.rows for one in found) / 4


def test_a_report_counts_for_the_message_that_it_is_about(tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=20, faults={"bounced": 1, "unreported": 1}, seed=5)
    about: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)
    for state in states(tmp_path / "logs").to_pylist():
        if state["reports"]:
            about[state["high"], state["low"]].append(state)
    lines = [row for path in files_of(tmp_path / "logs") for row in rows(path)]
    made = {row.split(b",")[17].decode() for row in lines if event(row) == "DSN"}
    failed = {row.split(b",")[11].decode() for row in lines if event(row) == "FAIL"}
    assert set(about) == {key_of(one) for one in failed}
    for one in failed:
        assert (sum(state["reports"] for state in about[key_of(one)]) == 0) == (one in made)
    assert len(failed - made) == 1


def more(name: str) -> Any:
    return lambda state: {name: state[name] + 1}


CHANGES: dict[str, Any] = {
    "accepted twice": more("received"),
    "begun twice": more("origins"),
    "a copy more was made than taken": more("redirects"),
    "a copy more was taken than made": more("holds"),
    "another one holds": more("holders"),
    "a recipient more was accepted": more("recipients"),
    "a recipient more was settled": more("ended"),
    "another recipient was settled": more("owed"),
    "another recipient is left somewhere": more("balance"),
    "one is left somewhere": more("residue"),
    "a row that sums do not understand": more("odd"),
    "the copy was made after the reception": lambda state: {"redirect_at": state["origin_at"] + 1},
    "no copy was made": lambda _: {"redirects": 0, "holds": 0, "holders": 0, "redirect_at": NONE_LEAST},
    "the copies have other recipients": more("copied"),
    "a report was not made": more("reports"),
    "a row has other digests": lambda state: {"digests_least": state["digests_greatest"] - 1},
    "another row came before it": lambda state: {"first": state["first"] - 1},
    "another row came after its end": lambda state: {"last": state["last"] + 1},
    "the copy was let go late": lambda state: {"discard_at": state["final_at"] + LATE_DISCARD + 1},
}


def merged(states: Sequence[dict[str, int]]) -> Messages:
    """Of databases 0, 1, …: a state's ``file`` is its database's number."""
    shape = SCHEMA.append(pa.field("file", pa.int32()))
    files = [FileFacts(path="", database=str(number)) for number in range(len(states))]
    table = pa.Table.from_pylist(states, schema=shape)
    columns = {name: table[name].to_numpy().astype("int64") for name in table.column_names}
    return Messages(columns, Origins.of(files))


def whole(logs: Path) -> tuple[dict[str, int], dict[str, int]]:
    """All that is known of one message: of its owner's file, and of its holder's."""
    rows = states(logs).to_pylist()
    one = next(row for row in rows if row["redirects"])
    owner, holder = sorted(
        (row for row in rows if (row["high"], row["low"]) == (one["high"], one["low"])),
        key=lambda row: -row["origins"],
    )
    return owner | {"file": 0}, holder | {"file": 1}


@pytest.mark.parametrize("change", CHANGES)
def test_one_sum_that_does_not_agree_makes_a_suspect(logs: Path, change: str) -> None:
    state, holder = whole(logs)
    assert merged([state, holder]).suspect.tolist() == [False]
    assert merged([state | CHANGES[change](state), holder]).suspect.tolist() == [True]


@pytest.mark.parametrize("copies", [0, 1])
def test_a_copy_that_was_made_by_another_database_makes_a_suspect(logs: Path, copies: int) -> None:
    """By that database alone, or by that one too: the copies are as many as were taken."""
    state, holder = whole(logs)
    state |= {"redirects": copies}
    none = dict.fromkeys(state, 0) | {
        "high": state["high"], "low": state["low"], "first": NONE_LEAST, "last": NONE_GREATEST,
        **dict.fromkeys(("accepted_at", "held_at", "digests_least", "redirect_at"), NONE_LEAST),
        **dict.fromkeys(("origin_at", "final_at", "discard_at", "hop", "digests_greatest"), NONE_GREATEST),
    }  # fmt: skip
    other = none | {"redirects": 1, "redirect_at": 1}
    others = [holder, none | {"holds": copies, "file": 2}]
    assert merged([state, *others, other | {"file": 0}]).suspect.tolist() == [False]
    assert merged([state, *others, other | {"file": 3}]).suspect.tolist() == [True]
