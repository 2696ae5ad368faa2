"""The sentence of Overview: how many copies of each message can be reached."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nodes_told import a_peer, answers, silent

from shadowrelay.console.safety import Level, judge
from shadowrelay.shown.nodes import statuses

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
SINCE, UNTIL = "2026-11-21T09:59:00.000Z", "2026-11-21T12:59:00.000Z"
MX2, MX3 = "mx2.test", "mx3.test"


def risk(cause: str, member: str, messages: int, **more: Any) -> dict[str, Any]:
    given = {"cause": cause, "member": member, "messages": messages, "since": SINCE, "until": UNTIL}
    return {**given, "advice": "start it again", **more}


def at_risk(*found: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"at_risk": sum(one["messages"] for one in found), "risks": list(found), **more}


def away(name: str, **more: Any) -> dict[str, Any]:
    return a_peer(name, "unreachable", since=SINCE, error="refused", **more)


def test_copies_of_an_owner_that_is_away_are_the_only_ones() -> None:
    first = answers("mx1.test", a_peer(MX2), away(MX3), **at_risk(risk("owner_away", MX3, 4)))
    second = answers(MX2, a_peer("mx1.test"), away(MX3), **at_risk(risk("owner_away", MX3, 7)))
    verdict = judge(statuses([first, second, silent(MX3)]), NOW)
    assert (verdict.level, verdict.sentence) == (
        Level.EXPOSED,
        "11 messages have one copy that can be reached.",
    )
    assert [one.text for one in verdict.reasons] == [
        "mx3 is away since 09:59:00 UTC: 11 messages have one copy that can be reached, the one kept for it. "
        "Start it again."
    ]
    assert verdict.reasons[0].href == "/messages?state=at_risk"


def test_a_member_that_is_away_without_mail_is_only_to_be_watched() -> None:
    verdict = judge(statuses([answers("mx1.test", a_peer(MX2), away(MX3)), silent(MX3)]), NOW)
    assert (verdict.level, verdict.sentence) == (Level.WATCH, "Every message is safe.")


def test_nobody_can_count_the_mail_of_two_that_are_away() -> None:
    seen = answers("mx1.test", away(MX2), away(MX3))
    verdict = judge(statuses([seen, silent(MX2), silent(MX3)]), NOW)
    assert (verdict.level, verdict.sentence) == (
        Level.EXPOSED,
        "Mail that only mx2 and mx3 have cannot be reached.",
    )
    retired = answers("mx1.test", away(MX2, retired=True), away(MX3))
    assert judge(statuses([retired, silent(MX3)]), NOW).level is Level.WATCH


def test_an_older_node_counts_what_is_exposed() -> None:
    old = answers("mx1.test", a_peer(MX2), exposed=2)
    for field in ("at_risk", "at_risk_since", "at_risk_until", "risks"):
        del old["status"][field]
    verdict = judge(statuses([old]), NOW)
    assert verdict.sentence == "2 messages have only one copy."


def test_what_new_nodes_count_is_not_hidden_by_an_older_one() -> None:
    old = answers("mx1.test", a_peer(MX2), exposed=2)
    del old["status"]["at_risk"]
    new = answers(MX2, a_peer("mx1.test"), away(MX3), **at_risk(risk("owner_away", MX3, 9)))
    verdict = judge(statuses([old, new, silent(MX3)]), NOW)
    assert verdict.sentence == "11 messages have one copy that can be reached."
