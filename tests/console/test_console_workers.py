"""The console where nodes have several workers: it speaks of nodes, and says which workers are silent."""

from __future__ import annotations

from datetime import UTC, datetime

from nodes_told import a_peer, answers, silent

from shadowrelay.console import picture
from shadowrelay.console.lately import Lately
from shadowrelay.console.safety import Level, judge
from shadowrelay.console.words import short
from shadowrelay.shown.nodes import statuses

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
MX1 = [
    answers(
        "mx1.test",
        a_peer("w2.mx1.test"),
        a_peer("mx2.test", shadow_held=2),
        a_peer("w2.mx2.test", shadow_held=1),
    ),
    answers(
        "w2.mx1.test", a_peer("mx1.test"), a_peer("mx2.test"), a_peer("w2.mx2.test", shadow_held=1), queued=4
    ),
]
MX2 = [
    answers("mx2.test", a_peer("mx1.test"), a_peer("w2.mx1.test", shadow_held=4), a_peer("w2.mx2.test")),
    answers("w2.mx2.test", a_peer("mx1.test"), a_peer("w2.mx1.test"), a_peer("mx2.test"), queued=3),
]


def test_the_picture_has_nodes_and_the_copies_between_them():
    boxes, copies = picture.members(statuses([*MX1, *MX2]))
    assert [(one.name, one.state, one.own) for one in boxes] == [
        ("mx1.test", "here", 4),
        ("mx2.test", "here", 3),
    ]
    assert {(one.owner, one.holder): one.count for one in copies} == {
        ("mx1.test", "mx2.test"): 4,
        ("mx2.test", "mx1.test"): 4,
    }


def test_a_box_says_how_many_workers_are_silent():
    boxes, copies = picture.members(statuses([*MX1, MX2[0], silent("w2.mx2.test")]))
    assert boxes[1].silent == "1 of 2 workers silent"
    drawn = picture.picture(boxes, copies, picture.WIDE)
    assert drawn.count("1 of 2 workers silent") == 2  # in the picture, and in its words


def test_the_verdict_names_the_node_and_its_silent_workers_once():
    away = a_peer(
        "w2.mx2.test", "unreachable", since="2026-11-21T09:50:00.000Z", shadow_held=5, error="refused"
    )
    seen = answers("mx1.test", a_peer("w2.mx1.test"), a_peer("mx2.test"), away)
    verdict = judge(statuses([seen, MX1[1], MX2[0], silent("w2.mx2.test")]), NOW)
    assert verdict.level is Level.WATCH
    assert [one.text for one in verdict.reasons] == [
        "mx2: 1 of its 2 workers does not answer: worker 2: it is silent."
    ]


def test_a_worker_that_a_node_cannot_reach_does_not_make_its_node_silent():
    away = a_peer("w2.mx2.test", "unreachable", since="2026-11-21T09:50:00.000Z", shadow_held=5, next="soon")
    seen = answers("mx1.test", a_peer("w2.mx1.test"), a_peer("mx2.test"), away)
    verdict = judge(statuses([seen, MX1[1], *MX2]), NOW)
    assert [one.text for one in verdict.reasons] == [
        "1 worker of the 2 of mx2 cannot be reached. Members keep 6 copies of its mail: worker 2: soon."
    ]


def test_a_worker_that_answers_again_is_no_mail_that_is_sent_again():
    lately = Lately()
    second = answers("w2.mx1.test", a_peer("mx2.test"), resubmitted=9)
    lately.look(statuses([answers("mx1.test", a_peer("mx2.test")), silent("w2.mx1.test")]), NOW)
    assert lately.look(statuses([answers("mx1.test", a_peer("mx2.test")), second]), NOW) == []


def test_the_short_name_of_a_worker_names_its_node():
    assert [short(name) for name in ("mx1.test", "w2.mx1.test", "192.0.2.1", "localhost")] == [
        "mx1",
        "w2.mx1",
        "192.0.2.1",
        "localhost",
    ]
