"""The contract between the tracking log and the audit, on logs of real nodes that were killed and wiped.

This module, and tests/simulation/test_forms.py for the form of each row, import both: the relay writes, the
audit reads.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import test_old_databases as old
import test_partitions as partitions
import test_recovery as recovery
import test_redirecting as redirecting
import test_redundancy_off_and_on as switching
import test_two_nodes_lost as two
import test_upgrade as upgrade
from click.testing import CliRunner
from namespaces import NetworkLab
from running_lab import INSIDE, OUTSIDE, RunningLab

sys.path.append(str(Path(__file__).parents[1] / "audit"))
from plainly import judged
from resealing import copied, each_row, removed, resealed
from resealing import logs as files_of
from tampering import unlisted, unseen
from typed import problems

from shadowaudit.core.findings import Class
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED, Verdict
from shadowaudit.logs.manifest import open_logs
from shadowrelay.admin.client import AdminClient
from shadowrelay.cli import main as shadowrelay
from shadowrelay.shown.records import JobEntry

pytestmark = pytest.mark.lab

JOURNAL = "journal@inside.test"

HARMLESS = {
    "DEFER",  # an attempt that changed nothing
    "RETRY",  # an operator's wish for an attempt
    "LOAD",  # one of two empty snapshots of a node with nothing between them
    "HAREDIRECT",  # of a copy made again: without it the message seems to have been exposed for longer
}
"""Events whose removal, sealed again, an audit may miss: none of them says that a message is safe."""


@contextmanager
def remembering(lab: RunningLab) -> Iterator[list[str]]:
    """Which databases are wiped while this lasts."""
    lost: list[str] = []
    wipe = lab.cluster.wipe

    def wiping(name: str) -> list[str]:
        databases = wipe(name)
        lost.extend(databases)
        return databases

    lab.cluster.wipe = wiping  # type: ignore[method-assign, assignment]
    yield lost


def audited(lab: RunningLab, story: Callable[[], None]) -> tuple[Verdict, Verdict, list[str]]:
    """The verdicts on a story's logs: with the lost databases declared, and without a word of them."""
    with remembering(lab) as lost:
        story()
    lab.cluster.down()
    logs = lab.directory / "tracking"
    assert problems(logs) == [], "events for queries are read whole"
    return judged(logs, lost=lost)[0], judged(logs)[0], lost


STORIES: tuple[Callable[[RunningLab], None], ...] = (
    recovery.test_an_owner_that_is_killed_and_restarts_delivers_its_queue_once,
    recovery.test_when_the_owners_disk_is_lost_the_holders_promote_on_first_contact,
    recovery.test_an_owner_that_was_away_too_long_becomes_the_shadow_of_who_took_over,
    recovery.test_an_owner_that_was_away_too_long_asks_before_it_delivers_again,
    recovery.test_when_the_holder_dies_the_owner_finds_another_one,
    recovery.test_when_half_was_delivered_before_the_owners_disk_is_lost_only_the_rest_is_sent,
    recovery.test_a_frozen_holder_costs_nothing_but_time,
    recovery.test_nothing_is_lost_when_a_node_and_its_disk_die_under_load,
    recovery.test_after_everything_was_killed_the_lab_resumes_where_it_was,
    two.test_two_nodes_that_die_and_keep_their_disks_lose_nothing,
    redirecting.test_a_queue_that_is_redirected_needs_the_nodes_disk_no_more,
    switching.test_off_copies_go_of_an_owner_that_is_lost_they_are_promoted_and_on_all_is_redundant_again,
)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("test_"))
def test_what_the_recovery_table_promises_is_proven_from_the_logs(
    lab: RunningLab, story: Callable[[RunningLab], None]
) -> None:
    verdict, undeclared, lost = audited(lab, lambda: story(lab))
    assert verdict.status == PROVEN, verdict.as_dict()
    assert undeclared.status == (INCOMPLETE if lost else PROVEN), undeclared.as_dict()


TOLD = {Class.PROMOTED, Class.PROMOTED_UNVERIFIED}
"""An owner that comes back hears that its mail was taken, and logs it; or that it was delivered."""

PARTITIONS: tuple[tuple[Callable[[NetworkLab], None], int, set[Class], set[Class]], ...] = (
    (  # the owner may have been cut off in the middle of an attempt, or between two
        partitions.test_the_others_promote_what_a_cut_off_owner_has_and_it_promotes_nothing,
        PROVEN,
        {Class.EXPOSED},
        {*TOLD, Class.IN_DOUBT},
    ),
    (
        partitions.test_a_cut_off_owner_that_returns_before_the_delivery_becomes_the_shadow,
        PROVEN,
        {Class.EXPOSED, Class.PROMOTED},
        set(),
    ),
    (  # its owner is killed in the end, and not started again: its log stays open
        partitions.test_when_the_third_member_loses_the_owner_too_its_messages_are_promoted,
        INCOMPLETE,
        {Class.EXPOSED, Class.PROMOTED_UNVERIFIED},
        set(),
    ),
    (
        partitions.test_in_a_boundary_of_two_the_log_explains_each_duplicate,
        PROVEN,
        {Class.EXPOSED, Class.FALSE_PROMOTION, Class.IN_DOUBT, Class.DUPLICATE_DROPPED},
        set(),
    ),
)
"""Partitions, the verdict, what is found in their logs, and what may be found there."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "status", "found", "possible"),
    PARTITIONS,
    ids=[one[0].__name__.removeprefix("test_") for one in PARTITIONS],
)
def test_what_nodes_did_that_did_not_hear_one_another_is_judged_by_their_logs(
    network_lab: NetworkLab,
    story: Callable[[NetworkLab], None],
    status: int,
    found: set[Class],
    possible: set[Class],
) -> None:
    verdict, _, lost = audited(network_lab, lambda: story(network_lab))
    assert lost == []
    seen = {Class(name) for name in verdict.classes}
    assert (verdict.status, seen - possible) == (status, found), verdict.as_dict()


@pytest.mark.slow
def test_a_frozen_owner_that_was_overtaken_and_came_back_is_seen_to_have_sent_nothing(
    lab: RunningLab,
) -> None:
    story = recovery.test_an_owner_that_was_frozen_too_long_asks_before_it_delivers_again
    verdict, _, _ = audited(lab, lambda: story(lab))
    assert verdict.status == PROVEN, verdict.as_dict()
    assert set(verdict.classes) <= {Class.EXPOSED, *TOLD}
    assert (verdict.classes[Class.EXPOSED], sum(verdict.classes.get(one, 0) for one in TOLD)) == (3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("first", upgrade.NODES)
def test_an_upgrade_under_load_is_proven_from_the_logs_of_both_programs(
    lab: RunningLab, program_before: Path, first: str
) -> None:
    verdict, _, _ = audited(
        lab,
        lambda: upgrade.test_nodes_are_upgraded_one_after_the_other_under_load(lab, program_before, first),
    )
    assert verdict.status == PROVEN, verdict.as_dict()
    # A node that is away holds no copy that counts; and clients send again what nobody answered.
    assert set(verdict.classes) <= {Class.EXPOSED, Class.DUPLICATE_DROPPED}, verdict.as_dict()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["stopped", "running"])
def test_a_database_that_was_put_back_is_proven_once_its_loss_is_declared(
    lab: RunningLab, tmp_path: Path, when: str
) -> None:
    verdict, undeclared, _ = audited(
        lab, lambda: old.test_a_database_that_was_put_back_is_known_by_its_lineage(lab, tmp_path, when)
    )
    assert verdict.status == PROVEN, verdict.as_dict()
    assert undeclared.status == INCOMPLETE


@pytest.mark.slow
def test_when_owner_and_holder_are_lost_the_audit_names_what_went_with_them(lab: RunningLab) -> None:
    """That none of it was delivered in the last moment, no log can tell: they went with the disks."""
    story = two.test_when_owner_and_holder_are_lost_the_logs_name_what_went_with_them
    verdict, _, _ = audited(lab, lambda: story(lab))
    assert verdict.status == INCOMPLETE
    assert verdict.classes[Class.UNPROVEN_LOSS] == 3, verdict.as_dict()


def spoil(lab: RunningLab, name: str, statement: str) -> None:
    """Change what the disk of a node that is down has, as the disk would."""
    with closing(sqlite3.connect(lab.cluster.node(name).data_dir / "transport.db")) as disk, disk:
        assert disk.execute(statement).rowcount > 0


CONTENT = "UPDATE content SET data = zeroblob(length(data))"
ROW = "UPDATE recipient SET address = 'x' || address"


@pytest.mark.parametrize(
    "damage", [CONTENT, pytest.param(ROW, marks=pytest.mark.slow)], ids=["content", "row"]
)
def test_one_bad_disk_is_told_of_and_loses_nothing(lab: RunningLab, damage: str) -> None:
    lab.up()
    lab.cluster.refuse()
    lab.send(2, recipients=(INSIDE, OUTSIDE))
    lab.cluster.kill("mx1")
    spoil(lab, "mx1", damage)
    lab.cluster.accept()
    lab.cluster.start("mx1")
    lab.verify()
    lab.cluster.down()
    redirects = lab.events("mx1", "HAREDIRECT")
    assert len(redirects) == 2
    for redirect in redirects:
        assert "S:Host=host-1;S:ShadowHost=host-3" in redirect["custom-data"]
    verdict, _ = judged(lab.directory / "tracking")
    assert verdict.status == PROVEN, verdict.as_dict()
    assert verdict.classes[Class.EXPOSED] == 2  # and promoted, if the owner took long to start


@pytest.mark.slow
@pytest.mark.parametrize("damage", [CONTENT, ROW], ids=["content", "row"])
def test_what_two_bad_disks_have_of_a_message_has_a_kind_of_its_own(lab: RunningLab, damage: str) -> None:
    lab.up()
    lab.cluster.refuse()
    lab.send(1)
    for name in ("mx1", "mx3"):
        lab.cluster.kill(name)
        spoil(lab, name, damage)
    for name in ("mx1", "mx3"):  # not before: the owner would fetch the good copy
        lab.cluster.start(name)
    lab.cluster.accept()
    recovery.wait_until(lambda: lab.events("mx1", "SUSPEND"), "the owner has asked everybody")
    lab.cluster.down()
    verdict, _ = judged(lab.directory / "tracking")
    assert verdict.status == VIOLATED, verdict.as_dict()
    assert set(verdict.classes) == {Class.DAMAGED, Class.SET_ASIDE, Class.EXPOSED}


@pytest.mark.slow
def test_a_lab_that_runs_is_audited_by_what_it_has_closed_and_the_rest_is_named(lab: RunningLab) -> None:
    lab.up("tracking.max_file_age=2s")
    tracking = lab.directory / "tracking"
    owner = lab.cluster.node("mx1").name
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    recovery.wait_until(
        lambda: owner in {one.node for one in open_logs([tracking])}, "the owner tells of them"
    )
    lab.verify()
    recovery.wait_until(lambda: not open_logs([tracking]), "everything is closed, though all nodes run")
    assert {path.parent.name for path in files_of(tracking)} == {"mx1", "mx2", "mx3"}
    verdict, _ = judged(tracking, allow_open=True)
    assert verdict.status == PROVEN, verdict.as_dict()
    assert verdict.totals["messages"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True], ids=["by its owner", "by its holder"])
def test_what_safety_net_gives_back_is_proven_from_the_logs(lab: RunningLab, *, lost: bool) -> None:
    lab.up(f"journal={JOURNAL}")
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    wait_for(lab, "RECEIVE", "AGENT", 3)
    lab.settle()
    databases = []
    if lost:
        lab.cluster.kill("mx1")
        databases += lab.cluster.wipe("mx1")
        recovery.wait_until(lambda: lab.misses("mx2", "mx1") > 0, "it is missed")
    window = ["--since", "1h", "--until", datetime.now(UTC).isoformat()]
    asked = ["resubmit", "add", *window, "--recipient", INSIDE, "--reason", "e2e", "--yes"]
    asked += ["--now", lab.cluster.node("mx1").name] if lost else []
    told = CliRunner(env={"SHADOWRELAY_ADMIN": lab.cluster.node("mx2").admin}).invoke(shadowrelay, asked)
    assert told.exit_code == 0, told.output
    wait_for(lab, "RESUBMIT", "SAFETYNET", 3)
    alive = ("mx2", "mx3") if lost else ("mx1", "mx2", "mx3")
    recovery.wait_until(lambda: all(lab.queued(one) == lab.held(one) == 0 for one in alive), "given back")
    if lost:
        lab.cluster.start("mx1")  # its new database confirms that the other one is gone
    lab.cluster.down()
    logs = lab.directory / "tracking"
    verdict, _ = judged(logs, lost=[one for one in databases if one])
    assert verdict.status == PROVEN, verdict.as_dict()
    seen = {Class(name) for name in verdict.classes}
    dropped = {Class.DUPLICATE_DROPPED, Class.EXPOSED}
    assert seen - dropped == ({Class.HOLDERS_WORD, Class.RESUBMITTED_UNVERIFIED} if lost else set())


def ordered(lab: RunningLab, verb: str, ids: list[str], *, at: str = "mx1") -> None:
    """An operator gives a job for these messages to that node."""
    body = {"verb": verb, "filter": {"ids": ids}, "reason": "spam of the night"}
    AdminClient(lab.cluster.node(at).admin).post(JobEntry, "jobs", body=body)


@pytest.mark.slow
def test_what_an_operator_removes_and_suspends_is_told_apart_in_the_logs(lab: RunningLab) -> None:
    lab.up()
    lab.cluster.refuse()
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    removed, suspended, _ = lab.ids("mx1")
    ordered(lab, "remove", [removed])
    ordered(lab, "suspend", [suspended])
    wait_for(lab, "REMOVE", "ADMIN", 1)
    wait_for(lab, "SUSPEND", "ADMIN", 1)
    lab.cluster.accept()
    recovery.wait_until(lambda: lab.queued("mx1") == 1, "only the suspended one waits")
    recovery.wait_until(lambda: lab.held("mx2") + lab.held("mx3") == 1, "and only its copy is held")
    lab.cluster.down()
    verdict, found = judged(lab.directory / "tracking")
    assert verdict.status == PROVEN, verdict.as_dict()
    assert (found[removed], found[suspended]) == ({Class.REMOVED}, {Class.SUSPENDED})
    assert set(found) == {removed, suspended}
    assert "an operator removed 1 and suspended 1" in verdict.sentence


@pytest.mark.slow
def test_a_removal_of_which_nobody_heard_in_time_is_seen_to_have_been_pending(lab: RunningLab) -> None:
    lab.up("shadow_resubmit_time_span=2s")
    lab.cluster.refuse()
    lab.send(1)
    for name in ("mx2", "mx3"):
        lab.cluster.kill(name)
    (message,) = lab.ids("mx1")
    ordered(lab, "remove", [message])
    wait_for(lab, "REMOVE", "ADMIN", 1)
    lab.cluster.kill("mx1")
    for name in ("mx2", "mx3"):
        lab.cluster.start(name)
    lab.cluster.accept()
    delivered = ("mx2", "mx3")
    recovery.wait_until(lambda: any(lab.events(one, "DELIVER") for one in delivered), "it came too late")
    lab.cluster.start("mx1")
    recovery.wait_until(lambda: lab.held("mx3") == lab.held("mx2") == 0, "all have heard")
    lab.cluster.down()
    verdict, found = judged(lab.directory / "tracking")
    assert verdict.status == PROVEN, verdict.as_dict()
    assert {Class.REMOVED, Class.REMOVED_TOO_LATE} <= found[message], found


LISTED = f"""
[aliases]
"alias@inside.test" = "team@inside.test"
[lists."team@inside.test"]
members = ["{INSIDE}", "{OUTSIDE}", "nobody@known.test"]
owner = "{INSIDE}"
[domains."known.test"]
known = true
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expanded", "lost"),
    [(3, False), (0, True), (1, True)],
    ids=["no node lost", "the disk of an owner lost", "the disk of an owner lost that had made something"],
)
def test_what_goes_to_a_list_is_proven_member_by_member(
    lab: RunningLab, tmp_path: Path, expanded: int, *, lost: bool
) -> None:
    """An owner that is lost may have made the members' message, or reports, in a log that went with it."""
    (tmp_path / "recipients.toml").write_text(LISTED)
    lab.up(f"recipients_file={tmp_path / 'recipients.toml'}", nodes=3)
    lab.send(3, recipients=("alias@inside.test", OUTSIDE))
    wait_for(lab, "RECEIVE", "ROUTING", expanded)
    databases = []
    if lost:
        lab.cluster.kill("mx1")
        databases += lab.cluster.wipe("mx1")
        lab.cluster.start("mx1")
    alive = ("mx1", "mx2", "mx3")
    recovery.wait_until(lambda: all(lab.queued(one) == lab.held(one) == 0 for one in alive), "all is settled")
    lab.cluster.down()
    logs = lab.directory / "tracking"
    verdict, _ = judged(logs, lost=[one for one in databases if one])
    assert verdict.status == PROVEN, verdict.as_dict()
    assert judged(logs)[0].status == (INCOMPLETE if lost else PROVEN), "nobody is accused"


def wait_for(lab: RunningLab, event: str, source: str, count: int) -> None:
    """Until the nodes have so many rows of it."""

    def rows() -> int:
        found = [one for node in lab.cluster.layout.nodes for one in lab.events(node.short, event)]
        return sum(one["source"] == source for one in found)

    recovery.wait_until(lambda: rows() >= count, f"{event} of {source}")


@pytest.mark.slow
def test_each_row_that_is_taken_out_of_real_logs_is_missed(lab: RunningLab, tmp_path: Path) -> None:
    """Alone, the file tells. With the file sealed again, the other rows do, but for harmless ones."""
    lab.up("shadow_resubmit_time_span=2s")
    lab.cluster.refuse()
    lab.send(1, recipients=(INSIDE, OUTSIDE))
    lab.cluster.kill("mx1")
    recovery.wait_until(lambda: lab.queued("mx3") == 1, "the holder promotes")
    lab.cluster.start("mx1")
    recovery.wait_until(lambda: lab.held("mx1") == 1, "the roles are swapped")
    lab.cluster.accept()
    lab.send(2, to="mx2", recipients=(INSIDE, OUTSIDE))
    lab.verify()
    lab.cluster.down()
    logs, target = lab.directory / "tracking", tmp_path / "logs"
    whole, _ = judged(logs)
    assert whole.status == PROVEN, whole.as_dict()
    copied(logs, target)
    resealed(target)
    assert judged(target)[0].status == PROVEN, "sealing again changes nothing by itself"

    missed: Counter[str] = Counter()
    for number in range(each_row(logs)):
        gone = removed(logs, target, number)
        assert judged(target)[0].status in (INCOMPLETE, VIOLATED), f"row {number}, {gone}, is gone"
        resealed(target)
        if judged(target)[0].status == PROVEN:
            missed[gone] += 1
    assert set(missed) <= HARMLESS, missed
    found, cleared = unseen(logs, target)
    assert unlisted(found) == set(), "what is changed is seen, or on the list"
    assert cleared == {}
