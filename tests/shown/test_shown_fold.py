"""How each field of what is shown adds up: over the workers of a node, and over nodes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, get_type_hints

import pytest
from nodes_told import a_peer, a_queue

from shadowrelay.shown.fold import fold
from shadowrelay.shown.nodes import DiskEntry, NodeLook, StatusLook
from shadowrelay.shown.queues import (
    HeldForHop,
    HopLook,
    HopShadowQueueEntry,
    HostEntry,
    NextHopEntry,
    QueueEntry,
    QueuesLook,
    ShadowQueueEntry,
)
from shadowrelay.shown.records import HavingEntry, JobCounts, MailCounts, RedundancyEntry, ResubmitCounts
from shadowrelay.shown.status import (
    DrainEntry,
    HeldBackEntry,
    LateEntry,
    PeerEntry,
    RatesLook,
    RedirectEntry,
    ReloadEntry,
    RiskEntry,
    ScrubAnswer,
    ScrubEntry,
    StatusEntry,
    TimeEntry,
    WholeRound,
)
from shadowrelay.shown.tls import TlsLook

NODE = "mx1.test"
EARLY, LATE = "2026-11-21T08:00:00.000Z", "2026-11-21T09:00:00.000Z"
PAIR = ({"name": NODE}, {"name": f"w2.{NODE}"})

Row = tuple[Any, Any, Any, Any]  # of two answers, of the node whose workers they are, of two nodes
Table = Mapping[str, Row]  # by names of fields
SUM: Row = (2, 5, 7, 7)
MOST: Row = (2.0, 5.0, 5.0, 5.0)
OLDEST: Row = (LATE, EARLY, EARLY, EARLY)
KNOWN_OLDEST: Row = (None, LATE, LATE, LATE)
NEWEST: Row = (None, EARLY, EARLY, EARLY)
WORSE: Row = ("first", "second", "second", "second")  # the second answer is worse, and speaks
BY_NAME: Row = ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 5}, {"a": 1, "b": 5})
NONE_OF_SEVERAL: Row = ("first", "second", None, None)
ANY: Row = (False, True, True, True)
ALL: Row = (True, False, False, False)
UNION: Row = (["b", "a"], ["c", "a"], ["b", "a", "c"], ["b", "a", "c"])
NAMED: Row = (NODE, f"w2.{NODE}", NODE, NODE)

A_RISK = {
    "cause": "owner_away", "member": "mx2.test", "messages": 3, "since": LATE, "until": LATE, "advice": "",
}  # fmt: skip

HOP: Table = {
    "sessions places": SUM,
    "failures": (2, 5, 5, 5),
    "failing_since": KNOWN_OLDEST,
    "rests_until": NEWEST,
    "awaits": ("", "dns", "dns", "dns"),
    "awaits_since": KNOWN_OLDEST,
    "rate": SUM,
    "last_reply": ("451 later", "250 ok", "250 ok", "250 ok"),
    "last_reply_at": (None, LATE, LATE, LATE),
    "hosts": (
        a_queue(NODE, "world")["hosts"],
        a_queue(NODE, "world", failures=3)["hosts"],
        [{**a_queue(NODE, "world")["hosts"][0], "sessions": 2}],
        [{**a_queue(NODE, "world")["hosts"][0], "sessions": 2}],
    ),
}
READ: Table = {
    "began_at": KNOWN_OLDEST,
    "messages messages_of octets octets_of compared": SUM,
    "damaged_content damaged_rows damaged_indexes mended unreadable": SUM,
    "rebuilt": (["a", "b"], ["a", "c"], ["a", "b", "c"], ["a", "b", "c"]),
    "round": (2, 1, 1, 1),
    "operator": ("", "ann", "ann", "ann"),
    "complete_at": (EARLY, LATE, LATE, LATE),
}
WHOLE = {"round": 1, "began_at": EARLY, "complete_at": LATE, "messages": 1, "seconds": 2.0, "at_once": True}
CORRUPT = {"outcome": "salvaged", "kept_as": "/x", "lost": {}, "messages_missing": False}
READY = ({"ready": True, "not_ready_because": ""}, {"ready": False, "not_ready_because": "the disk is full"})
AWAY = ({"state": "reachable"}, {"state": "unreachable"})
SUSPENDED = {"operator": "o", "reason": "r", "since": EARLY, "until": None}
HELD = {"next_hop": "world", "messages": 2, "recipients": 3}
TWICE = {"next_hop": "world", "messages": 4, "recipients": 6}


A_RESULT = {"domain": "a.test", "host": "mx.a.test", "result": "", "when": EARLY}
LATER_RESULT = {**A_RESULT, "result": "certificate-expired", "when": LATE}


def a_client(times: int, last: str) -> dict[str, Any]:
    return {"connector": "mx", "limit": "messages", "who": "192.0.2.7", "times": times, "last": last}


def a_pressure(level: str, reading: float) -> dict[str, Any]:
    return {"resource": "data_disk", "level": level, "reading": reading, "limits": [96, 99, 97, 94]}


TABLES: Mapping[type, tuple[tuple[dict[str, Any], dict[str, Any]], Table]] = {
    StatusEntry: (
        (PAIR[0] | READY[0] | {"draining": True}, PAIR[1] | READY[1] | {"draining": False}),
        {
            "name": NAMED,
            "site host": ("first", "second", "first", "first"),
            "version": ("1", "2", "1, 2", "1, 2"),
            "started_at": (EARLY, LATE, LATE, LATE),
            "uptime": (5.0, 2.0, 2.0, 2.0),
            "ready": (True, False, True, True),
            "not_ready_because": ("", "the disk is full", "", ""),
            "warning": (
                "low disk",
                "",
                *("worker 1: low disk; worker 2 takes no mail: the disk is full",) * 2,
            ),
            "draining redundancy": ALL,
            "drain_operator": ("ann", "bob", "bob", "bob"),
            "drain_ordered_at": (EARLY, LATE, LATE, LATE),
            "settings": ({"routes.a": "1"}, {"routes.a": "2"}, *({"routes.a": "1"},) * 2),
            "database_id incarnation sequence": NONE_OF_SEVERAL,
            "queued exposed asking in_doubt set_aside damaged damaged_aside promoting shadow_held": SUM,
            "safety_net refused kept_for_hops discard_events commits resubmitted indexes_rebuilt": SUM,
            "oldest_queued oldest_held overdue_since at_risk_since": KNOWN_OLDEST,
            "at_risk": (0, 3, 3, 3),
            "at_risk_until": (None, LATE, None, None),
            "risks": ([], [A_RISK], [A_RISK], [A_RISK]),
            "acknowledged_late": (
                {"longest": 1.0, "waiting": 2},
                {"longest": 3.0, "waiting": 4},
                *({"longest": 3.0, "waiting": 6},) * 2,
            ),
            "held_back": ([a_client(2, EARLY)], [a_client(3, LATE)], *([a_client(5, LATE)],) * 2),
            "pressure": (
                [a_pressure("medium", 97.0)],
                [a_pressure("high", 99.5)],
                *([a_pressure("high", 99.5)],) * 2,
            ),
            "scrub": ({"octets": 1}, {"octets": 2}, {"octets": 3}, {"octets": 3}),
            "corrupt_database": (None, CORRUPT, CORRUPT, CORRUPT),
            "peers": (
                [a_peer("mx2.test", shadow_held=1)],
                [a_peer("mx2.test", shadow_held=2), a_peer(NODE)],
                [
                    a_peer("mx2.test", shadow_held=3, workers=["mx2.test"], away=[])
                    | dict.fromkeys(("database_id", "incarnation", "sequence", "applied"))
                ],
                [
                    a_peer("mx2.test", shadow_held=3, workers=["mx2.test"], away=[])
                    | dict.fromkeys(("database_id", "incarnation", "sequence", "applied")),
                    a_peer(NODE),
                ],
            ),
        },
    ),
    RiskEntry: (
        ({}, {}),
        {
            "cause member advice": ("first", "second", "first", "first"),
            "messages": SUM,
            "since": KNOWN_OLDEST,
            "until": (LATE, None, None, None),
        },
    ),
    HeldBackEntry: (
        ({}, {}),
        {"connector limit who": ("first", "second", "first", "first"), "times": SUM, "last": NEWEST},
    ),
    TlsLook: (({}, {}), {"results": ([A_RESULT], [LATER_RESULT], [LATER_RESULT], [LATER_RESULT])}),
    RatesLook: (({}, {}), {"accepted delivered deferred failed": ([1, 2, 3], [5], [1, 2, 8], [1, 2, 8])}),
    LateEntry: (({}, {}), {"longest": MOST, "waiting": SUM}),
    PeerEntry: (
        tuple(a_peer(name["name"], **state) for name, state in zip(PAIR, AWAY, strict=True)),  # type: ignore[dict-item]
        {
            "name": (NODE, f"w2.{NODE}", NODE, f"w2.{NODE}"),
            "site host step error": WORSE,
            "failures": (2, 5, 5, 5),
            "address": ("first", "second", "first", "second"),
            "state": ("reachable", "unreachable", "unreachable", "unreachable"),
            "since": (None, EARLY, EARLY, EARLY),
            "last_contact": NEWEST,
            "retired": ALL,
            "retired_by": ("", "ann", "ann", "ann"),
            "database_id incarnation sequence applied": NONE_OF_SEVERAL,
            "shadow_held holds_ours events_waiting": SUM,
            "next": ("", "soon", "worker 2: soon", "worker 2: soon"),
            "workers away": (["b", "a"], ["c", "a"], ["c", "a", "b"], ["c", "a", "b"]),
        },
    ),
    ScrubAnswer: (
        (
            {"messages": 0, "octets": 3_000_000, "messages_of": 0, "octets_of": 4_000_000, "began_at": EARLY},
            {"messages": 0, "octets": 0, "messages_of": 0, "octets_of": 8_000_000},
        ),
        READ
        | {
            "interval": MOST,
            "progress": (0.75, None, 0.25, 0.25),
            "at_once": ANY,
            "last": (WHOLE, WHOLE | {"round": 2}, *(WHOLE | {"messages": 2},) * 2),
            "begun": (2, 1, 1, 1),
            "workers": UNION,
        },
    ),
    WholeRound: (({}, {}), READ | {"at_once": ALL, "seconds": MOST}),
    DrainEntry: (
        (PAIR[0] | {"draining": True}, PAIR[1] | {"draining": False}),
        {
            "name": NAMED,
            "draining done": ALL,
            "drain_operator": ("ann", "bob", "bob", "bob"),
            "drain_ordered_at": (EARLY, LATE, LATE, LATE),
            "arriving queued exposed at_risk set_aside": SUM,
            "held_for held_by handed_over not_yet_taken kept_for_hops": BY_NAME,
            "workers": UNION,
        },
    ),
    RedirectEntry: (
        PAIR,
        {
            "name": NAMED,
            "running": ANY,
            "to": (None, "mx2.test", "mx2.test", "mx2.test"),
            "began_at": OLDEST,
            "done": ALL,
            "ended": ("done", "stopped", "stopped", "stopped"),
            "queued handed_over copied not_yet_taken": SUM,
            "left": BY_NAME,
            "reply warning": ("", "no", "no", "no"),
            "operator stopped_by": ("", "ann", "ann", "ann"),
            "workers": UNION,
        },
    ),
    TimeEntry: (
        (PAIR[0] | {"doubts": []}, PAIR[1] | {"doubts": ["stepped"]}),
        {
            "name": (NODE, f"w2.{NODE}", NODE, f"w2.{NODE}"),
            "reckoned wall ahead stepped uncertain members": WORSE,
            "doubts": ([], ["stepped"], ["stepped"], ["stepped"]),
            "workers": (["b"], ["a"], ["a", "b"], ["a", "b"]),
        },
    ),
    ReloadEntry: (PAIR, {"name": NAMED, "taken": ALL, "now restart wrong warnings workers": UNION}),
    NextHopEntry: (
        (
            {"awaits": "", "awaits_since": None, "last_reply_at": None},
            {"awaits": "dns", "awaits_since": LATE, "last_reply_at": LATE},
        ),
        HOP,
    ),
    HostEntry: (
        ({"failures": 0}, {"failures": 3}),
        {
            "host route group preference weight last_error": WORSE,
            "sessions": SUM,
            "failures": (0, 3, 3, 3),
            "rests_until": NEWEST,
        },
    ),
    QueueEntry: (
        (
            {
                "next_hop": "world",
                "status": "active",
                "awaits": "",
                "awaits_since": None,
                "last_reply_at": None,
            },
            {
                "next_hop": "world",
                "status": "suspended",
                "suspension": SUSPENDED,
                "awaits": "dns",
                "awaits_since": LATE,
                "last_reply_at": LATE,
            },
        ),
        HOP
        | {
            "identity": ("a", "b", f"{NODE}\\world", "b"),
            "next_hop": ("world", "world", "world", "world"),
            "status": ("active", "suspended", "suspended", "suspended"),
            "messages waiting recipients active asking exposed unread": SUM,
            "oldest": OLDEST,
            "next_attempt overdue_since": KNOWN_OLDEST,
            "last_error why": ("first", "", "first", "first"),
            "suspension": (None, SUSPENDED, SUSPENDED, SUSPENDED),
        },
    ),
    HopShadowQueueEntry: (
        ({"next_hop": "world", "state": "reachable"}, {"next_hop": "world", "state": "failing"}),
        {
            "identity": ("a", "b", f"{NODE}\\Shadow\\world", "b"),
            "next_hop": ("world", "world", "world", "world"),
            "messages": SUM,
            "oldest": KNOWN_OLDEST,
            "state": ("reachable", "failing", "failing", "failing"),
            "failures": (2, 5, 5, 5),
            "error": WORSE,
        },
    ),
    HeldForHop: (({}, {}), {"next_hop": ("world", "world", "world", "world"), "messages recipients": SUM}),
    ShadowQueueEntry: (
        (
            {"primary": "mx2.test", "primary_state": "reachable"},
            {"primary": "mx2.test", "primary_state": "unreachable"},
        ),
        {
            "identity": ("a", "b", f"{NODE}\\Shadow\\mx2.test", "b"),
            "primary": ("mx2.test", "mx2.test", "mx2.test", "mx2.test"),
            "primary_state": ("reachable", "unreachable", "unreachable", "unreachable"),
            "messages": SUM,
            "oldest": OLDEST,
            "next_hops": ([HELD], [HELD], [TWICE], [TWICE]),
            "next": WORSE,
        },
    ),
    QueuesLook: (
        ({}, {}),
        {
            "queues": ([HELD], [HELD], [TWICE], [TWICE]),
            "hop_shadow_queues": (
                [{"next_hop": "a"}],
                [{"next_hop": "b"}],
                *([{"next_hop": "a"}, {"next_hop": "b"}],) * 2,
            ),
            "shadow_queues": (
                [{"primary": "mx2.test", "messages": 1}],
                [{"primary": "w2.mx2.test", "messages": 2}],
                *([{"primary": "mx2.test", "messages": 3}],) * 2,
            ),
        },
    ),
    HopLook: (
        (
            {"awaits": "", "awaits_since": None, "last_reply_at": None},
            {"awaits": "dns", "awaits_since": LATE, "last_reply_at": LATE},
        ),
        HOP
        | {
            "queue": (None, {"messages": 1}, {"messages": 1}, {"messages": 1}),
            "error": ("", "refused", "refused", "refused"),
            "suspension": (None, SUSPENDED, SUSPENDED, SUSPENDED),
            "attempts": ([{"at": EARLY}], [{"at": LATE}], *([{"at": LATE}, {"at": EARLY}],) * 2),
        },
    ),
    HavingEntry: (
        ({}, {}),
        {"name": ("a", "a", "a", "a"), "has": ALL, "at": KNOWN_OLDEST, "why": ("", "no", "no", "no")},
    ),
    RedundancyEntry: (
        PAIR,
        {
            "name": NAMED,
            "on settings_file": ALL,
            "overruled": ANY,
            "queued exposed held": SUM,
            "switch": ({"on": False}, {"on": False}, {"on": False}, {"on": False}),
            "members": ([{"name": "a"}], [{"name": "b"}], *([{"name": "a"}, {"name": "b"}],) * 2),
            "workers": UNION,
        },
    ),
    JobCounts: (({}, {}), {"did late waiting pending": SUM}),
    MailCounts: (({}, {}), {"messages recipients octets": SUM}),
    ResubmitCounts: (({}, {}), {"made": SUM, "skipped": BY_NAME, "left": (None, 5, 5, 5)}),
    NodeLook: (
        ({}, {}),
        {
            "members": ([{"name": "a"}], [{"name": "b"}], *([{"name": "a"}, {"name": "b"}],) * 2),
            "certificates": ({"a": LATE}, {"a": EARLY, "b": LATE}, *({"a": EARLY, "b": LATE},) * 2),
            "disk": ({"free": 5}, {"free": 2}, {"free": 2}, {"free": 2}),
        },
    ),
    DiskEntry: (
        ({}, {}),
        {"directory": ("a", "b", "a", "a"), "free": (5, 2, 2, 2), "minimum": (2, 5, 5, 5)},
    ),
    StatusLook: (({}, {}), {"status": ({"queued": 2}, {"queued": 5}, {"queued": 7}, {"queued": 7})}),
}
CASES = [
    pytest.param(model, context, field, row, id=f"{model.__name__}.{field}")
    for model, (context, table) in TABLES.items()
    for fields, row in table.items()
    for field in fields.split()
]


def test_every_field_of_what_adds_up_is_in_the_table() -> None:
    for model, (_, table) in TABLES.items():
        named = list(chain.from_iterable(fields.split() for fields in table))
        assert sorted(named) == sorted(get_type_hints(model)), model.__name__


@pytest.mark.parametrize(("model", "context", "field", "row"), CASES)
def test_a_field_adds_up_by_its_rule(
    model: type, context: tuple[dict[str, Any], dict[str, Any]], field: str, row: Row
) -> None:
    first, second, of_workers, of_nodes = row
    both = [{**context[0], field: first}, {**context[1], field: second}]
    assert fold(model, both, NODE)[field] == of_workers
    assert fold(model, both)[field] == of_nodes


@pytest.mark.parametrize(("model", "context", "field", "row"), CASES)
def test_one_answer_alone_is_what_it_says(
    model: type, context: tuple[dict[str, Any], dict[str, Any]], field: str, row: Row
) -> None:
    alone = {**context[0], field: row[0]}
    assert fold(model, [alone])[field] == row[0]


def test_who_does_not_answer_is_not_done_and_hides_what_is_of_all() -> None:
    assert not fold(DrainEntry, [{"done": True}], NODE, silent=1)["done"]
    assert fold(ScrubEntry, [{"last": WHOLE}], NODE, silent=1)["last"] is None
    assert fold(StatusEntry, [{"database_id": "d"}], NODE, silent=1)["database_id"] is None


def test_what_an_answer_of_another_version_lacks_or_has_is_kept_so() -> None:
    assert fold(StatusEntry, [{"queued": 1}, {"queued": 2, "newer": 3}], NODE) == {"queued": 3}
    assert fold(StatusEntry, [{"queued": 1, "newer": 3}, {"queued": 2}], NODE) == {"queued": 3, "newer": 3}


def test_of_several_nodes_there_is_what_the_model_has() -> None:
    assert fold(LateEntry, [{"node": "mx1", "waiting": 1}, {"node": "mx2", "waiting": 2}]) == {"waiting": 3}
