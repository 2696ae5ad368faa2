"""Verdicts on rows that are written down here: what no generated story has."""

from __future__ import annotations

import pytest

from shadowaudit.core.events import Event, Kind
from shadowaudit.core.facts import FileFacts
from shadowaudit.core.findings import Class
from shadowaudit.core.judge import judge
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, Verdict
from shadowaudit.core.weighing import weigh

NODES = ("mx1", "mx2", "mx3")
EVIDENCE = weigh(
    [
        FileFacts(
            path=node, node=node, database=node, boot="a", first=1, last=9, rows=9,
            first_is_snapshot=True, last_closes_snapshot=True,
        )
        for node in NODES
    ]
)  # fmt: skip


def row(node: str, sequence: int, kind: Kind, peer: str = "", reason: str = "") -> Event:
    return Event(
        node=node, database=node, boot="a", sequence=sequence, at=sequence, kind=kind, recipients=(1,),
        peer=peer, reason=reason,
    )  # fmt: skip


DELIVERED = (
    row("mx2", 2, Kind.HARECEIVE, "mx1"),
    row("mx1", 2, Kind.HAREDIRECT, "mx2"),
    row("mx1", 3, Kind.RECEIVE),
    row("mx1", 4, Kind.DELIVER),
    row("mx2", 3, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded"),
)


def found(*events: Event) -> set[Class]:
    return {one.what for one in judge(events, EVIDENCE).findings}


def test_a_message_that_was_held_and_delivered_gives_no_finding() -> None:
    assert found(*DELIVERED) == set()


@pytest.mark.parametrize("node", ["mx2", "mx3"])
def test_a_node_that_delivers_what_it_does_not_own_is_named(node: str) -> None:
    assert found(*DELIVERED, row(node, 5, Kind.DELIVER)) == {Class.UNKNOWN_ORIGIN, Class.DUPLICATE}


@pytest.mark.parametrize(("allow_open", "status"), [(False, INCOMPLETE), (True, PROVEN)])
def test_what_is_open_at_the_end_of_a_log_is_allowed_when_nodes_run(*, allow_open: bool, status: int) -> None:
    classes = {Class.OPEN.value: 1}
    verdict = Verdict(totals={}, classes=classes, evidence=EVIDENCE, files=3, nodes=3, allow_open=allow_open)
    assert verdict.status == status
