"""Where logs begin and end: what is missing there is neither held against a message nor proven away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from auditing import Auditor
from click.testing import CliRunner
from plainly import judged
from test_audit_histories import AFTER, BEGIN, LOST, OTHER, begin, delivered, log, mail, stop

from shadowaudit.cli import main
from shadowaudit.core.findings import Class
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED
from shadowaudit.logs.file import digest_file
from shadowlab.generate.message import OWNER, Message
from shadowlab.generate.stories import FAULTS
from shadowlab.generate.writing import GeneratedRow, NodeLog, witnessed


def classes(found: dict[str, set[Class]]) -> set[Class]:
    return {one for names in found.values() for one in names}


def open_log(directory: Path, node: str, boot: str, first: int) -> Path:
    """A log that a node still writes: its rows are nobody's business yet."""
    path = directory / node / f".MSGTRK-{node}.example.com-{boot * 16}-{first}.LOG.open"
    path.write_bytes(b"#Software: shadowrelay\r\n")
    return path


# A row is missing, and a message's own rows look as if it had been done wrong.


@pytest.mark.parametrize("late", [False, True], ids=["copied once", "copied again later"])
def test_a_row_that_is_missing_before_the_reception_accuses_nobody(tmp_path: Path, *, late: bool) -> None:
    def story(one: Message) -> None:
        one.accepted()
        if late:
            one.redirect(20)
        one.deliver(40)
        one.discard(800)

    mx1, mx2 = log(tmp_path, "mx1", AFTER, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    mail(2, 2000, mx1, mx2, story)
    for one in (mx1, mx2):
        stop(one, 5000)
    assert judged(tmp_path)[0].status == PROVEN
    (path,) = mx1.files
    lines = path.read_bytes().splitlines(keepends=True)
    gone = [place for place, line in enumerate(lines) if b",HAREDIRECT," in line][1]
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    verdict, found = judged(tmp_path)
    assert verdict.status == INCOMPLETE
    assert not classes(found) & {Class.ONE_COPY, Class.LATE_COPY}


# A log ends between two rows of one step.


def ends_with_a_copy(directory: Path) -> Path:
    """mx1 closed a file between HAREDIRECT and RECEIVE, and is killed or goes on in the next file."""
    mx1, mx2 = log(directory, "mx1", AFTER, "a"), log(directory, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    mail(2, 2000, mx1, mx2, lambda one: (one.hold(), one.redirect()))  # type: ignore[func-returns-value]
    for one in (mx1, mx2):
        one.close(BEGIN + 3000)
    return directory


@pytest.mark.parametrize(("allow_open", "status"), [(True, PROVEN), (False, INCOMPLETE)])
def test_a_file_may_end_before_the_reception_of_what_is_copied(
    tmp_path: Path, *, allow_open: bool, status: int
) -> None:
    verdict, found = judged(ends_with_a_copy(tmp_path), allow_open=allow_open)
    assert verdict.status == status, verdict.as_dict()
    assert Class.UNKNOWN_ORIGIN not in classes(found)


def test_a_copy_of_what_was_never_received_is_a_violation_when_the_log_goes_on(tmp_path: Path) -> None:
    mx1, mx2 = log(tmp_path, "mx1", AFTER, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 2000, mx1, mx2, lambda one: (one.hold(), one.redirect()))  # type: ignore[func-returns-value]
    mail(2, 3000, mx1, mx2, delivered)
    mx1.close(BEGIN + 4000)
    stop(mx2, 4000)
    verdict, found = judged(tmp_path, allow_open=True)
    assert verdict.status == VIOLATED
    assert Class.UNKNOWN_ORIGIN in classes(found)


# A disk that was lost, and what may have been in its log's last rows.


def alone(one: Message) -> None:
    """Accepted without a copy, as policy allowed."""
    one.add(0, OWNER, one.row("HAREDIRECTFAIL", client=one.owner, context="No suitable shadow servers"))
    one.receive(custom=";S:Replication=Failed")


def orphaned(one: Message) -> None:
    one.accepted()
    one.discard(800, reason="Superseded")


@pytest.mark.parametrize("story", [alone, orphaned])
def test_what_may_have_been_delivered_in_the_lost_end_of_a_log_is_neither_lost_nor_proven(
    tmp_path: Path, story: Callable[[Message], None]
) -> None:
    mx1, mx2 = log(tmp_path, "mx1", LOST, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    mail(2, 1500, mx1, mx2, story)
    mx1.close(BEGIN + 2000)
    now = log(tmp_path, "mx1", AFTER, "b")
    begin(now, 60_000)
    for one in (now, mx2):
        stop(one, 70_000)
    verdict, found = judged(tmp_path, lost=[LOST])
    assert verdict.status == INCOMPLETE
    assert classes(found) - {Class.EXPOSED} == {Class.UNPROVEN_LOSS}


def test_a_loss_after_a_disk_was_lost_is_a_loss(tmp_path: Path) -> None:
    """Another database of that node lost its disk, long before: no row of it can tell of this message."""
    old, mx2 = log(tmp_path, "mx1", LOST, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (old, mx2):
        begin(one, 0)
    mail(1, 1000, old, mx2, delivered)
    old.close(BEGIN + 2000)
    now = log(tmp_path, "mx1", AFTER, "b")
    begin(now, 60_000)
    mail(2, 61_000, now, mx2, FAULTS["lost"][0])
    for one in (now, mx2):
        stop(one, 70_000)
    verdict, found = judged(tmp_path, lost=[LOST])
    assert verdict.status == VIOLATED
    assert Class.LOST in classes(found)


def test_an_older_database_does_not_confirm_the_loss_of_the_newest_one(tmp_path: Path) -> None:
    old, mx2 = log(tmp_path, "mx1", AFTER, "a"), log(tmp_path, "mx2", OTHER, "c")
    begin(old, 0)
    stop(old, 1000)
    begin(mx2, 0)
    now = log(tmp_path, "mx1", LOST, "b")
    begin(now, 60_000)
    mail(1, 61_000, now, mx2, delivered)
    now.close(BEGIN + 63_000)
    stop(mx2, 70_000)
    verdict, _ = judged(tmp_path, lost=[LOST])
    assert verdict.status == INCOMPLETE
    assert ["no row of another database agrees" in gap.what for gap in verdict.evidence.gaps] == [True]


# Logs that nodes still write: they are not read, but their names say where they begin.


def running(directory: Path) -> tuple[Path, int]:
    """Two nodes that run, what they closed so far, and the last row of mx1's."""
    mx1, mx2 = log(directory, "mx1", LOST, "a"), log(directory, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    for one in (mx1, mx2):
        one.close(BEGIN + 2000)
    return directory, mx1.sequence


def test_a_log_that_is_open_where_the_closed_one_ends_is_the_nodes_own(tmp_path: Path) -> None:
    logs, last = running(tmp_path)
    open_log(logs, "mx1", "a", last + 1)
    assert judged(logs, allow_open=True)[0].status == PROVEN


def test_a_log_that_was_closed_while_one_looked_is_the_nodes_own(tmp_path: Path) -> None:
    logs, _ = running(tmp_path)
    open_log(logs, "mx1", "a", 1)
    assert judged(logs, allow_open=True)[0].status == PROVEN


def test_a_newer_database_of_which_there_is_only_an_open_log_ends_the_older_one(tmp_path: Path) -> None:
    """Its disk was lost with the rows since the last file, and the node goes on with another database."""
    logs, _ = running(tmp_path)
    open_log(logs, "mx1", "b", 1)
    verdict, _ = judged(logs, allow_open=True)
    assert verdict.status == INCOMPLETE
    (gap,) = verdict.evidence.gaps
    assert gap.what == f"the log of database {LOST} ends without a closing snapshot"
    assert "went on with a log that begins at row 1" in gap.so


def test_a_new_database_that_others_name_and_whose_log_is_still_open_is_waited_for(tmp_path: Path) -> None:
    """Nobody lost a disk: the node goes on with a database whose first log is not closed yet."""

    def gap(directory: Path) -> str:
        verdict, _ = judged(directory, allow_open=True)
        (found,) = (one for one in verdict.evidence.gaps if one.what == f"database {OTHER} has no log")
        return found.so

    mx1, mx2 = log(tmp_path, "mx1", AFTER, "a"), log(tmp_path, "mx2", OTHER, "b")
    for one in (mx1, mx2):
        begin(one, 0)
    named = f";S:Shadow=mx2.example.com;S:ShadowDb={OTHER}"
    row = GeneratedRow("HAREDIRECT", AFTER, "a@example.com", 1, server="mx2", context="mx2=250", custom=named)
    row.reference = f"{'b' * 16}:1"
    mx1.write(BEGIN + 1, row)
    for one in (mx1, mx2):
        stop(one, 5000)
    mx2.files[0].unlink()
    assert "Add its files, or say --lost" in gap(tmp_path)
    open_log(tmp_path, "mx2", "b", 1)
    told = gap(tmp_path)
    assert "ask again when it is closed" in told
    assert "--lost" not in told
    old = log(tmp_path, "mx2", LOST, "c")
    begin(old, 0)
    old.close(BEGIN + 1)
    (tmp_path / "mx2" / f".MSGTRK-mx2.example.com-{'b' * 16}-1.LOG.open").unlink()
    open_log(tmp_path, "mx2", "c", old.sequence + 1)
    assert "--lost" in gap(tmp_path), "that open log goes on where another database's closed one ends"


@pytest.mark.parametrize("stopped", [False, True], ids=["", "it was stopped and started in between"])
def test_a_file_that_is_missing_before_an_open_log_is_missed(tmp_path: Path, *, stopped: bool) -> None:
    mx1, mx2 = log(tmp_path, "mx1", AFTER, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    if stopped:
        stop(mx1, 2000)
    mx1.close(BEGIN + 2000)
    mx2.close(BEGIN + 2000)
    open_log(tmp_path, "mx1", "d" if stopped else "a", mx1.sequence + 9)
    verdict, _ = judged(tmp_path, allow_open=True)
    assert verdict.status == INCOMPLETE
    assert f"mx1.example.com still writes begins at row {mx1.sequence + 9}" in "".join(
        gap.what for gap in verdict.evidence.gaps
    )


def test_the_command_looks_for_open_logs(tmp_path: Path) -> None:
    logs, last = running(tmp_path / "logs")
    asked = ["verify", str(logs), "--allow-open", "--no-report", "--out", str(tmp_path / "out")]
    path = open_log(logs, "mx1", "a", last + 1)
    assert CliRunner().invoke(main, asked).exit_code == PROVEN
    path.unlink()
    open_log(logs, "mx1", "b", 1)
    assert CliRunner().invoke(main, asked).exit_code == INCOMPLETE


# A snapshot ends a log only if it was taken when the node was stopped.


@pytest.mark.parametrize("taken", ["start", "hourly"])
def test_a_log_that_ends_with_a_snapshot_of_a_node_that_runs_does_not_end_there(
    tmp_path: Path, taken: str
) -> None:
    mx1, mx2 = log(tmp_path, "mx1", AFTER, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    stop(mx2, 5000)
    begin(mx1, 5000, taken)
    mx1.close(BEGIN + 5000)
    verdict, _ = judged(tmp_path)
    assert verdict.status == INCOMPLETE
    assert judged(tmp_path, allow_open=True)[0].status == PROVEN


def test_a_snapshot_that_does_not_say_when_it_was_taken_ends_a_log_as_before(tmp_path: Path) -> None:
    mx1, mx2 = log(tmp_path, "mx1", AFTER, "a"), log(tmp_path, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    for one in (mx1, mx2):
        stop(one, 5000)
        (path,) = one.files
        resealed_as_of_old(path, b";S:Taken=stop")
    assert judged(tmp_path)[0].status == PROVEN


def resealed_as_of_old(path: Path, without: bytes) -> None:
    from shadowlab.generate.writing import footer

    lines = path.read_bytes().splitlines(keepends=True)
    covered = b"".join(lines[:-1]).replace(without, b"").replace(b"01.00.0001.000", b"01.00.0000.000")
    rows = [line for line in lines if not line.startswith(b"#")]
    path.write_bytes(covered + footer(covered, 1, len(rows), len(rows)))


# The last life of a node is gone, and the one before had an end.


def begun_again(directory: Path) -> tuple[NodeLog, NodeLog]:
    """mx1 stopped and was started again: the log of its second life, and mx2's."""
    mx1, mx2 = log(directory, "mx1", AFTER, "a"), log(directory, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    stop(mx1, 2000)
    again = log(directory, "mx1", AFTER, "d", after=mx1.sequence)
    begin(again, 3000)
    return again, mx2


def test_a_delivery_that_a_holder_was_told_of_and_no_log_received_is_not_proven(tmp_path: Path) -> None:
    again, mx2 = begun_again(tmp_path)

    def settled(one: Message) -> None:
        one.accepted()
        one.deliver(40)
        one.discard(800, names=("", ""))  # an older version did not say by whom it was told

    mail(2, 4000, again, mx2, settled)
    stop(again, 6000)
    stop(mx2, 6000)
    assert judged(tmp_path)[0].status == PROVEN
    for path in again.files:
        path.unlink()
    verdict, found = judged(tmp_path)
    assert verdict.status == INCOMPLETE
    assert Class.UNPROVEN_LOSS in classes(found)


def test_a_copy_that_is_still_held_tells_how_far_its_owners_log_has_to_reach(tmp_path: Path) -> None:
    again, mx2 = begun_again(tmp_path)
    mail(2, 4000, again, mx2, Message.accepted)
    for one, role in ((again, "primary"), (mx2, "shadow")):
        waiting = GeneratedRow(
            "LOAD", f"0190b5c4-0000-7000-8000-{2:012x}", "user2@example.com", 1, custom=role
        )
        one.snapshot(BEGIN + 6000, "end", [waiting])
        one.close(BEGIN + 6000)
    assert judged(tmp_path)[0].status == PROVEN
    for path in again.files:
        path.unlink()
    verdict, _ = judged(tmp_path)
    assert verdict.status == INCOMPLETE
    assert [f"another node saw row 6 of database {AFTER}" in gap.what for gap in verdict.evidence.gaps] == [
        True
    ]


def test_a_snapshot_that_is_taken_in_parts_says_what_is_left_when_it_ends(tmp_path: Path) -> None:
    """What was listed may be delivered before its end."""

    def settled(one: Message) -> None:
        one.deliver(0)
        one.discard(100)

    def listed(one: NodeLog, number: int, role: str) -> None:
        row = GeneratedRow("LOAD", name(number), f"user{number}@example.com", 1, "BOOTLOADER")
        row.custom = f";S:Snapshot=parts;S:Role={role}"
        one.write(BEGIN + 5000, row)

    def name(number: int) -> str:
        return f"0190b5c4-0000-7000-8000-{number:012x}"

    again, mx2 = begun_again(tmp_path)
    for number in (2, 3):
        mail(number, 4000, again, mx2, Message.accepted)
    begun = again.sequence
    for number in (2, 3):
        listed(again, number, "primary")
    mail(3, 5500, again, mx2, settled)
    among = again.sequence - begun
    closing = f";S:Snapshot=parts;S:Count=2;S:Among={among};S:Taken=stop"
    again.write(
        BEGIN + 6000, GeneratedRow("LOAD", "", "", 0, "BOOTLOADER", server=again.node, custom=closing)
    )
    again.close(BEGIN + 6000)
    waiting = GeneratedRow("LOAD", name(2), "user2@example.com", 1, custom="shadow")
    mx2.snapshot(BEGIN + 6000, "end", [waiting])
    mx2.close(BEGIN + 6000)
    verdict, found = judged(tmp_path)
    assert (verdict.status, classes(found)) == (PROVEN, {Class.IN_TRANSIT})


# Files are deleted after some time: then one asks for the time since.


def since_the_second_file(directory: Path, story: Callable[[Message], None]) -> tuple[NodeLog, NodeLog, int]:
    """Both nodes' first files are deleted; one message was received in them, and delivered later."""

    def waits(one: Message) -> None:
        one.accepted()
        one.deliver(9000)
        one.discard(9500)

    mx1, mx2 = log(directory, "mx1", AFTER, "a"), log(directory, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    accepted: list[Message] = []

    def note(one: Message) -> None:
        waits(one)
        accepted.append(one)

    parts = log(directory, "mx1", AFTER, "x"), log(directory, "mx2", OTHER, "x")
    mail(1, 1000, *parts, note)
    rows = [
        (moment, parts[who], row) for moment, who, row in sorted(accepted[0].steps, key=lambda one: one[0])
    ]
    for moment, who, row in rows[:3]:
        (mx1 if who is parts[0] else mx2).write(moment, row)
    for one in (mx1, mx2):
        one.close(BEGIN + 2000)
    mail(2, 3000, mx1, mx2, delivered)
    mail(3, 4000, mx1, mx2, story)
    for moment, who, row in rows[3:]:
        (mx1 if who is parts[0] else mx2).write(moment, row)
    for one in (mx1, mx2):
        stop(one, 20_000)
        one.files[0].unlink()
    return mx1, mx2, BEGIN + 3500


@pytest.mark.parametrize(
    ("story", "status"), [(delivered, PROVEN), (FAULTS["lost"][0], VIOLATED)], ids=["clean", "lost"]
)
def test_what_was_received_in_files_that_are_deleted_since_is_no_violation(
    here: Auditor, tmp_path: Path, story: Callable[[Message], None], status: int
) -> None:
    _, _, since = since_the_second_file(tmp_path / "logs", story)
    verdict = here(tmp_path / "logs", since=since)
    assert verdict.status == status, verdict.as_dict()
    assert (Class.LOST in verdict.classes) == (status == VIOLATED)


def test_a_copy_that_came_before_the_holders_log_begins_is_not_missed(here: Auditor, tmp_path: Path) -> None:
    """The holder's clock is behind: its row of what was received since is in a file that was deleted."""
    mx1, mx2 = log(tmp_path / "logs", "mx1", AFTER, "a"), log(tmp_path / "logs", "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    mx1.close(BEGIN + 2500)
    begin(mx1, 2600, "hourly")

    def story(one: Message) -> None:
        one.redirect()
        one.receive()
        one.deliver(40)

    held: list[Message] = []
    mail(2, 3000, mx1, log(tmp_path / "elsewhere", "mx2", OTHER, "c"), held.append)
    held[0].hold(-900)
    held[0].discard(800)
    (first, _, came), (then, _, left) = held[0].steps
    mail(2, 3000, mx1, mx2, story)
    mx2.write(first, came)
    mx2.close(BEGIN + 2200)
    mail(3, 2300, mx1, mx2, delivered)
    mx2.write(then, left)
    for one in (mx1, mx2):
        stop(one, 20_000)
        one.files[0].unlink()
    verdict = here(tmp_path / "logs", since=BEGIN + 2900)
    assert verdict.status == PROVEN, verdict.as_dict()


# What the sums alone would clear.


def test_a_message_that_was_sent_in_doubt_once_is_noted(here: Auditor, tmp_path: Path) -> None:
    def story(one: Message) -> None:
        one.accepted()
        one.deliver(40, custom=";S:InDoubt=true")
        one.discard(800)

    mx1, mx2 = log(tmp_path / "logs", "mx1", AFTER, "a"), log(tmp_path / "logs", "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, story)
    for one in (mx1, mx2):
        stop(one, 5000)
    verdict = here(tmp_path / "logs")
    assert (verdict.status, dict(verdict.classes)) == (PROVEN, {Class.IN_DOUBT.value: 1})


def test_a_copy_at_another_node_than_was_said_is_no_copy_there(here: Auditor, tmp_path: Path) -> None:
    mx1, mx2, mx3 = (
        log(tmp_path / "logs", name, database, name[-1])
        for name, database in (("mx1", AFTER), ("mx2", OTHER), ("mx3", LOST))
    )
    for one in (mx1, mx2, mx3):
        begin(one, 0)
    said: list[Message] = []
    mail(1, 1000, mx1, mx2, said.append)
    delivered(said[0])
    for moment, who, row in sorted(said[0].steps, key=lambda step: step[0]):
        logs = {one.node: one for one in (mx1, mx2)}
        (mx1 if who == OWNER else mx3).write(moment, witnessed(row, logs))
    for one in (mx1, mx2, mx3):
        stop(one, 5000)
    assert here(tmp_path / "logs").classes == {Class.FALSE_COPY.value: 1}


# What rows say of other nodes' logs.


def test_rows_tell_which_other_databases_there_are_and_how_far_their_logs_have_to_reach(
    tmp_path: Path,
) -> None:
    def row(event: str, number: int, **more: str) -> GeneratedRow:
        return GeneratedRow(event, f"0190b5c4-0000-7000-8000-{number:012x}", "user@example.com", 1, **more)

    mx1 = log(tmp_path, "mx1", AFTER, "a")
    begin(mx1, 0)
    shadow = ";S:Shadow=mx2.example.com;S:ShadowDb=" + OTHER
    for number, sequence in enumerate([17, 23, 42]):
        reference = f"{'c' * 16}:{sequence}"
        told = {"context": "mx2.example.com=250", "custom": shadow, "reference": reference}
        mx1.write(BEGIN + 1, row("HAREDIRECT", number, server="mx2", **told))
    owner = ";S:Rank=1;S:OwnerDb=" + LOST
    offered = f"{'d' * 16}:31"
    mx1.write(BEGIN + 2, row("HARECEIVE", 7, client="mx3.example.com", custom=owner, reference=offered))
    mx1.write(BEGIN + 2, row("HARECEIVE", 8, client="mx3.example.com", custom=owner, context="taken"))
    for number in (7, 8):
        reason = f";S:Reason=database-rolled-back;S:Owner=mx3.example.com;S:OwnerDb={LOST}"
        taken = row("RESUBMIT", number, client="mx3.example.com", custom=reason, reference=LOST)
        taken.epoch, taken.source, taken.context = 2, "REDUNDANCY", "database-rolled-back"
        mx1.write(BEGIN + 3, taken)
    stop(mx1, 4)
    facts, _ = digest_file(mx1.files[0])
    assert facts.witnessed == {OTHER: 42, LOST: 31}
    assert facts.databases == {OTHER: "mx2.example.com", LOST: "mx3.example.com"}
    assert set(facts.shadows) == {"mx2.example.com", "mx3.example.com"}
    assert (facts.promoted, facts.set_back) == ({LOST: 2}, {LOST: "mx3.example.com"})
    gaps = " ".join(gap.what for gap in judged(tmp_path)[0].evidence.gaps)
    assert f"database {OTHER} has no log" in gaps
    assert f"database {LOST} has no log" in gaps
