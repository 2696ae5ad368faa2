"""What files are worth, from their facts alone: each thing that may be missing, and the sentence about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shadowaudit.core.copies import distinct
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import Fault, FileFacts, Opened, Snapshot
from shadowaudit.core.weighing import weigh

MX1, MX2 = "db-of-mx1", "db-of-mx2"


def file(first: int, last: int, *, node: str = "mx1", database: str = MX1, **more: Any) -> FileFacts:
    """A file of a whole log: its life begins with a snapshot at row 1."""
    facts: dict[str, Any] = {
        "path": f"{node}-{more.get('boot', 'a')}-{first}",
        "node": node,
        "database": database,
        "boot": "a",
        "first": first,
        "last": last,
        "rows": last - first + 1,
        "begins": first,
        "ends": more.get("begins", first) + last - first,
        "first_is_snapshot": first == 1,
    }
    return FileFacts(**facts | more)


def closing(first: int, last: int, **more: Any) -> FileFacts:
    return file(first, last, last_closes_snapshot=True, **more)


WHOLE = (file(1, 10), closing(11, 20))
OTHER = closing(1, 5, node="mx2", database=MX2)


def told(evidence: Evidence) -> list[str]:
    return [gap.what for gap in evidence.gaps]


def test_nothing_is_missing_in_a_whole_log() -> None:
    evidence = weigh([*WHOLE, OTHER])
    assert (told(evidence), evidence.notes) == ([], ())
    assert evidence.complete("mx1")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ((file(1, 10), closing(12, 20)), "rows 11 to 11 of database db-of-mx1 are missing"),
        ((closing(2, 20, first_is_snapshot=True),), "the log of database db-of-mx1 begins at row 2"),
        ((*WHOLE, closing(11, 20, path="again")), "rows from 11 of database db-of-mx1 are there twice"),
        ((file(1, 10), file(11, 20)), "ends without a closing snapshot"),
        (
            (file(1, 10), closing(11, 20, boot="b")),
            "the life b of the database does not begin with a snapshot",
        ),
        ((*WHOLE, closing(1, 5, node="mx2", database=MX2, witnessed={MX1: 21})), "saw row 21 of database"),
        ((*WHOLE, closing(1, 5, node="mx2", database=MX2, databases={"db-3": "mx3"})), "db-3 has no log"),
        ((closing(1, 5, shadows=("mx9",)),), "a node without logs"),
        (
            (*WHOLE, closing(1, 5, node="mx2", database=MX2, set_back={MX1: "mx1"})),
            "was set back, and its log",
        ),
        ((closing(1, 5, snapshots=(Snapshot(id="s", listed=2, count=3, end=4),)),), "snapshot s has 2 rows"),
        (
            (closing(1, 5, snapshots=(Snapshot(id="s", listed=2),)),),
            "snapshot s has 2 rows, and no closing row",
        ),
        ((closing(1, 5, faults=("rows that cannot be read",), unreadable=1),), "1 row that cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_is_told(files: tuple[FileFacts, ...], sentence: str) -> None:
    evidence = weigh(files)
    assert len([one for one in told(evidence) if sentence in one]) == 1, told(evidence)


def test_what_another_node_saw_and_is_there_is_not_missed() -> None:
    assert told(weigh([*WHOLE, closing(1, 5, node="mx2", database=MX2, witnessed={MX1: 20})])) == []


@pytest.mark.parametrize(
    ("first", "missing"), [(21, []), (30, ["saw row 35", "begins at row 30"]), (None, ["saw row 35"])]
)
def test_rows_that_others_saw_are_in_the_log_that_is_open_if_it_begins_where_the_others_end(
    first: int | None, missing: list[str]
) -> None:
    witness = closing(1, 5, node="mx2", database=MX2, witnessed={MX1: 35})
    opened = [] if first is None else [Opened(node="mx1", boot="a", first=first)]
    evidence = weigh([*WHOLE, witness], allow_open=True, opened=opened)
    assert [text in what for text, what in zip(missing, told(evidence), strict=True)] == [True] * len(missing)
    assert not evidence.complete("mx1")
    assert told(weigh([*WHOLE, witness], opened=opened)) != []


def test_a_log_of_a_node_that_runs_may_end_anywhere() -> None:
    evidence = weigh([file(1, 10)], allow_open=True)
    assert told(evidence) == []
    assert not evidence.complete("mx1")


AFTER = "db-of-mx1-after"


@pytest.mark.parametrize("ends", [file, closing], ids=["runs", "was stopped"])
@pytest.mark.parametrize("lost", [False, True])
def test_only_the_newest_database_of_a_node_may_be_open(ends: Any, *, lost: bool) -> None:
    files = [file(1, 10), ends(1, 5, database=AFTER, boot="b", begins=100), OTHER]
    for given in (files, files[::-1]):
        evidence = weigh(given, allow_open=True, lost=[MX1] if lost else [])
        assert told(evidence) == (
            [] if lost else ["the log of database db-of-mx1 ends without a closing snapshot"]
        )
        assert all(f"went on with database {AFTER}" in gap.so for gap in evidence.gaps)


def test_a_database_that_was_closed_before_another_took_its_place_is_whole() -> None:
    files = [*WHOLE, file(1, 5, database=AFTER, boot="b", begins=100)]
    assert told(weigh(files, allow_open=True)) == []


def test_a_clock_that_was_ahead_for_a_while_does_not_make_a_database_the_newest_one() -> None:
    files = [file(1, 10, begins=5000), file(11, 20), file(1, 5, database=AFTER, boot="b", begins=100)]
    evidence = weigh(files, allow_open=True)
    assert told(evidence) == [f"the log of database {MX1} ends without a closing snapshot"]
    assert told(weigh(files, allow_open=True, lost=[MX1])) == []


def test_a_database_that_came_back_after_another_is_the_newest_one() -> None:
    came_back = file(11, 20, boot="c", begins=200, first_is_snapshot=True)
    files = [file(1, 10), came_back, file(1, 5, database=AFTER, boot="b", begins=100)]
    evidence = weigh(files, allow_open=True)
    assert told(evidence) == [f"the log of database {AFTER} ends without a closing snapshot"]


def test_a_log_may_begin_before_the_time_that_is_asked_about() -> None:
    late = closing(100, 120, begins=5000, first_is_snapshot=True)
    assert told(weigh([late], since=6000)) == []
    assert told(weigh([late], since=4000)) == ["the log of database db-of-mx1 begins at row 100"]


def test_a_loss_that_no_row_of_others_agrees_with_is_not_believed() -> None:
    evidence = weigh([file(1, 10), OTHER], lost=[MX1])
    assert told(evidence) == ["database db-of-mx1 was declared lost, and no row of another database agrees"]


@pytest.mark.parametrize(
    "agrees",
    [
        closing(1, 5, node="mx2", database=MX2, promoted={MX1: 3}),
        closing(1, 5, boot="b", database="db-of-mx1-after", begins=100),
    ],
    ids=["a holder promoted", "another database followed"],
)
def test_a_loss_that_others_agree_with_is_believed_and_what_stays_unprovable_is_said(
    agrees: FileFacts,
) -> None:
    evidence = weigh([file(1, 10), agrees], lost=[MX1])
    assert told(evidence) == []
    (note,) = evidence.unprovable
    assert note.startswith("A database of mx1 was lost")
    assert "after its row 10 is in nobody's log" in note
    assert not evidence.complete("mx1")


SET_BACK = (file(1, 20), closing(11, 30, boot="b", first_is_snapshot=True, begins=100))


def test_a_database_that_was_set_back_has_a_gap_and_accuses_nobody() -> None:
    evidence = weigh(SET_BACK)
    assert told(evidence) == ["database db-of-mx1 was set back to an older state"]
    assert evidence.databases[MX1].rolled_back
    assert not evidence.databases[MX1].whole
    assert not evidence.complete("mx1")


def test_what_was_given_up_is_excused_and_the_present_end_is_nobodys_loss() -> None:
    evidence = weigh(SET_BACK, lost=[MX1])
    assert told(evidence) == []
    (note,) = evidence.unprovable
    assert note.startswith("A database of mx1 was set back to an older state: ")
    assert "after row 20 of its life a is in nobody's log" in note
    assert "row 30" not in note
    assert not evidence.databases[MX1].lost
    assert not evidence.complete("mx1")


def test_rows_that_a_disk_took_with_it_before_an_older_state_was_put_back_are_named_and_excused() -> None:
    """They were in the log that was open when the disk was lost: the older copy no longer had them either."""
    files = (file(5, 20), closing(25, 30, boot="b", first_is_snapshot=True, begins=100),
             closing(1, 5, node="mx2", database=MX2, set_back={MX1: "mx1"}))  # fmt: skip
    assert [gap.split(" ", 1)[0] for gap in told(weigh(files))] == ["the", "rows", "holders"]
    evidence = weigh(files, lost=[MX1])
    assert told(evidence) == []
    assert "in its rows 1 to 4 and in its rows 21 to 24 and in the life" in evidence.unprovable[0]
    assert not evidence.complete("mx1")


def test_rows_that_are_missing_since_an_older_state_was_put_back_are_excused_by_nothing() -> None:
    files = (SET_BACK[0], file(11, 15, boot="b", first_is_snapshot=True, begins=100),
             closing(17, 30, boot="b", begins=110))  # fmt: skip
    assert told(weigh(files, lost=[MX1])) == ["rows 16 to 16 of database db-of-mx1 are missing"]


def test_the_present_end_of_a_database_that_was_set_back_is_held_to_what_every_end_is() -> None:
    files = (SET_BACK[0], file(11, 30, boot="b", first_is_snapshot=True, begins=100))
    assert told(weigh(files, lost=[MX1])) == ["the log of database db-of-mx1 ends without a closing snapshot"]
    assert told(weigh(files, lost=[MX1], allow_open=True)) == []


def test_the_snapshot_that_counts_is_of_the_life_that_went_on() -> None:
    old = file(1, 20, snapshots=(Snapshot(id="s", listed=1, count=1, end=19),))
    new = closing(5, 8, boot="b", first_is_snapshot=True, begins=100,
                  snapshots=(Snapshot(id="t", listed=1, count=1, end=8),))  # fmt: skip
    assert weigh([old, new]).databases[MX1].snapshot == (7, 8)


def test_a_loss_after_an_older_state_was_put_back_is_told_as_both() -> None:
    other = closing(1, 5, node="mx2", database=MX2, set_back={MX1: "mx1"}, promoted={MX1: 1})
    evidence = weigh([file(1, 10), closing(1, 5, database=AFTER, boot="b", begins=100), other], lost=[MX1])
    assert told(evidence) == []
    (note,) = evidence.unprovable
    assert "was set back to an older state, then lost: 1 of its messages" in note
    assert "after its row 10 is in nobody's log" in note


def test_the_last_complete_snapshot_is_the_one_that_counts() -> None:
    snapshots = (Snapshot(id="s", listed=1, count=1, end=3), Snapshot(id="t", listed=2, count=2, end=9))
    assert weigh([closing(1, 9, snapshots=snapshots)]).databases[MX1].snapshot == (7, 9)


def test_the_rows_of_a_snapshot_that_was_taken_in_parts_are_among_more_rows_than_it_has() -> None:
    parts = (Snapshot(id="s", listed=2, count=2, end=9, among=6),)
    assert weigh([closing(1, 9, snapshots=parts)]).databases[MX1].snapshot == (3, 9)


def test_a_snapshot_that_a_kill_cut_short_is_not_missed_once_a_later_one_is_complete() -> None:
    begun, later = Snapshot(id="s", listed=2), Snapshot(id="t", listed=1, count=1, end=19)
    again = file(11, 20, boot="b", begins=100, first_is_snapshot=True, snapshots=(later,))
    assert told(weigh([file(1, 10, snapshots=(begun,)), replace(again, last_closes_snapshot=True)])) == []
    last = closing(11, 20, boot="b", begins=100, first_is_snapshot=True, snapshots=(begun,))
    assert told(weigh([file(1, 10, snapshots=(replace(later, end=9),)), last])) == [
        "snapshot s has 2 rows, and no closing row"
    ]


def test_a_database_whose_log_has_a_gap_accuses_nobody() -> None:
    evidence = weigh([file(1, 10), closing(12, 20)])
    assert not evidence.databases[MX1].whole
    assert not evidence.complete("mx1")


def test_a_declared_loss_explains_the_end_of_a_log_and_not_a_hole_in_it() -> None:
    after = file(1, 5, database=AFTER, boot="b", begins=100)
    evidence = weigh([file(1, 10), file(13, 20), after], lost=[MX1], allow_open=True)
    assert told(evidence) == ["rows 11 to 12 of database db-of-mx1 are missing"]


def test_a_log_that_goes_on_has_not_ended() -> None:
    assert weigh(WHOLE).complete("mx1")
    assert not weigh(WHOLE, opened=[Opened(node="mx1", boot="b", first=21)]).complete("mx1")


def test_a_snapshot_that_began_in_a_file_deleted_by_age_is_not_missed() -> None:
    cut = Snapshot(id="s", listed=1, count=3, end=101)
    late = closing(100, 120, begins=5000, first_is_snapshot=True, snapshots=(cut,))
    assert told(weigh([late], since=6000)) == []
    inside = replace(cut, end=119)
    assert told(weigh([replace(late, snapshots=(inside,))], since=6000)) != []


def test_a_database_that_was_set_back_twice_ends_with_the_life_that_began_last() -> None:
    files = (*SET_BACK, file(6, 12, boot="c", begins=200, first_is_snapshot=True))
    for given in (files, files[::-1]):
        evidence = weigh(given, lost=[MX1])
        assert told(evidence) == ["the log of database db-of-mx1 ends without a closing snapshot"]
        assert "after row 20 of its life a and after row 30 of its life b is in" in evidence.unprovable[0]


@pytest.mark.parametrize(("first", "missed"), [(11, False), (21, False), (30, True)])
def test_of_a_database_that_was_set_back_the_log_may_go_on_with_an_older_row(
    first: int, *, missed: bool
) -> None:
    other = closing(1, 5, node="mx2", database=MX2, set_back={MX1: "mx1"})
    evidence = weigh([*WHOLE, other], lost=[MX1], opened=[Opened(node="mx1", boot="b", first=first)])
    assert ["still writes" in gap for gap in told(evidence)] == [True] * missed


def test_a_log_of_a_node_that_runs_may_end_in_the_middle_of_a_snapshot() -> None:
    begun = Snapshot(id="s", listed=2)
    assert told(weigh([file(1, 10, snapshots=(begun,))], allow_open=True)) == []
    followed = [file(1, 10, snapshots=(begun,)), file(11, 20)]
    assert told(weigh(followed, allow_open=True)) == ["snapshot s has 2 rows, and no closing row"]


@pytest.mark.parametrize(("fault", "several"), [(Fault.TRAILING, True), (Fault.WRONG_HASH, False)])
def test_a_file_whose_hash_is_not_of_all_its_octets_is_no_copy_of_another(
    fault: Fault, *, several: bool
) -> None:
    one = file(1, 10, sha256="same", size=9, faults=(fault,))
    assert len(distinct([one, replace(one, path="elsewhere")])[0]) == 1 + several
