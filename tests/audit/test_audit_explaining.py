"""What explain finds about a message is what verify finds about it."""

from __future__ import annotations

import csv
import json
import random
from collections import defaultdict
from pathlib import Path

import pytest
from auditing import Auditor
from click.testing import CliRunner
from pyarrow import parquet
from resealing import event, logs, resealed, rows

from shadowaudit.cli import main
from shadowlab.generate.cluster import generate
from shadowlab.generate.stories import FAULTS, FILE_FAULTS

SENDER = "sender@example.org"
"""Of all messages; all reports are for this address."""

Found = dict[str, list[tuple[str, str, str]]]


def explained(what: str, logs: Path) -> tuple[Found, dict[str, list[str]]]:
    """Findings and rows by message."""
    typed = ["explain", what, str(logs), "--json", "--most", "1000000"]
    result = CliRunner().invoke(main, typed)
    assert result.exit_code == 0, result.output
    told = [json.loads(line) for line in result.stdout.splitlines()]
    found = {
        one["id"]: sorted((each["class"], each["severity"], each["detail"]) for each in one["findings"])
        for one in told
    }
    return found, {one["id"]: one["rows"] for one in told}


def verified(out: Path) -> Found:
    ids = parquet.read_table(out / "messages.parquet", columns=["id", "rows"]).to_pylist()
    found: Found = defaultdict(list) | {one["id"]: [] for one in ids if one["rows"]}
    columns = ["id", "class", "severity", "detail"]
    for one in parquet.read_table(out / "findings.parquet", columns=columns).to_pylist():
        found[one["id"]].append((one["class"], one["severity"], one["detail"]))
    return {name: sorted(some) for name, some in found.items()}


@pytest.mark.parametrize("fault", ["sent-again-past-a-hop", "resubmitted"])
def test_a_message_that_is_given_back_is_told_with_its_new_id(tmp_path: Path, fault: str) -> None:
    generate(tmp_path / "logs", messages=5, faults={fault: 1}, seed=3)
    rows = [line for path in (tmp_path / "logs").rglob("*.LOG") for line in path.read_text().splitlines()]
    (given,) = (cells for cells in csv.reader(rows) if len(cells) > 9 and cells[8] == "RESUBMIT")
    new, original = given[11], given[17].partition("/")[0]
    told = CliRunner().invoke(main, ["explain", original, str(tmp_path / "logs")])
    assert f"as{new}" in "".join(told.stdout.split()), told.stdout


def test_explain_shows_no_row_that_verify_cannot_read(here: Auditor, tmp_path: Path) -> None:
    """All rows of a file have the schema-version of its first row."""
    generate(tmp_path / "logs", messages=5, faults={}, seed=3)
    for path in logs(tmp_path / "logs"):
        changed = [row for row in rows(path) if event(row) == "DELIVER"]
        if changed:
            break
    other = changed[0].replace(b"01.00.0001.000", b"01.00.0000.000")
    path.write_bytes(path.read_bytes().replace(changed[0], other))
    resealed(tmp_path / "logs")
    assert any("row that cannot be read" in gap.what for gap in here(tmp_path / "logs").evidence.gaps)
    message = changed[0].split(b",")[11].decode()
    _, shown = explained(message, tmp_path / "logs")
    assert not [line for line in shown[message] if event(line.encode()) == "DELIVER"]


@pytest.mark.parametrize("spoilt", [None, *FILE_FAULTS])
def test_explain_and_verify_find_the_same_about_every_message(
    here: Auditor, tmp_path: Path, spoilt: str | None
) -> None:
    chance = random.Random(spoilt)
    faults = {name: chance.randrange(1, 4) for name in FAULTS} | ({spoilt: 1} if spoilt else {})
    logs = tmp_path / "logs"
    generate(logs, messages=300, faults=faults, seed=chance.randrange(1000), file_size=60_000)
    here(logs, out=tmp_path / "out")
    found, _ = explained(SENDER, logs)
    assert found == verified(tmp_path / "out")
    assert any(found.values())


def test_a_bounce_is_explained_with_the_report_that_its_sender_got(tmp_path: Path) -> None:
    truth = generate(tmp_path, messages=40, faults={"bounced": 1, "unreported": 1}, seed=3)
    found, rows = explained(SENDER, tmp_path)
    failed = {name for name, some in rows.items() if any(",FAIL," in row for row in some)}
    reported = {name for name in failed if any(",DSN," in row for row in rows[name])}
    assert reported
    assert (
        {name for name in failed if any(one[0] == "report-missing" for one in found[name])}
        == {name for name, classes in truth.found.items() if "report-missing" in classes}
        == failed - reported
    )


def test_explain_reads_the_rows_of_exchange_that_verify_judges(here: Auditor, tmp_path: Path) -> None:
    """Ids in upper case, a row of two lines, and a log that was collected twice."""
    name = "9b3c0f5e-2d4b-4f0a-8a31-08d3e2b90001"
    head = (
        "#Software: Microsoft Exchange Server\r\n#Log-type: Message Tracking Log\r\n#Fields: "
        "date-time,event-id,network-message-id,recipient-address,recipient-count,message-subject,"
        "sender-address,server-hostname,source,message-id\r\n"
    )
    rows = [
        f'2026-11-21T10:00:0{number}.000Z,{event},{given},anna@contoso.com,1,"Re:\r\nprices",{SENDER},EX01,SMTP,\r\n'
        for number, (event, given) in enumerate(
            [("RECEIVE", name), ("DELIVER", name.upper()), ("DELIVER", name)]
        )
    ]
    rows.append(f"2026-11-21T10:00:04.000Z,RECEIVE,{name},bob@contoso.com,1,Re,{SENDER},EX01,SMTP,\r\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "MSGTRK2026112110-1.LOG").write_bytes((head + "".join(rows)).encode())
    (logs / "MSGTRK2026112110-2.LOG").write_bytes((head + rows[0]).encode())
    here(logs, out=tmp_path / "out")
    found, told = explained(SENDER, logs)
    assert found == verified(tmp_path / "out")
    assert [one[0] for one in found[name]] == ["duplicate", "open-at-the-end-of-the-log"]
    assert len(told[name]) == len(rows)
