"""Puts the queues of a node's workers together: one queue for each node and next hop. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shadowrelay.operator.finding import Entry
from shadowrelay.operator.grouping import grouped, is_later_worker, least, node_name

_STATUSES = ("suspended", "resting", "active", "ready", "retry", "asking")
"""Of a queue: what hinders it, or moves it, comes first."""

_HOPS = ("given_up", "failing", "untried", "reachable")
_PRIMARIES = ("unreachable", "not_configured", "untried", "reachable")
_ATTEMPTS = 20


def queues(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each node: the ``queues``, ``shadow_queues`` and ``hop_shadow_queues`` of its workers."""
    return list(grouped(entries, _lists, _names_a_worker))


def queue(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each node: what its workers know of one next hop."""
    return list(grouped(entries, _next_hop, lambda _: False))


def _names_a_worker(entry: Entry) -> bool:
    return any(is_later_worker(one["primary"]) for one in entry.get("shadow_queues", ()))


def _lists(node: str, answering: Sequence[Entry]) -> Entry:
    held = [{**one, "primary": node_name(one["primary"])} for one in _all(answering, "shadow_queues")]
    return {
        "queues": _by(_all(answering, "queues"), "next_hop", lambda hop, some: _queue(node, hop, some)),
        "hop_shadow_queues": _by(
            _all(answering, "hop_shadow_queues"), "next_hop", lambda hop, some: _hop_shadow(node, hop, some)
        ),
        "shadow_queues": _by(held, "primary", lambda owner, some: _shadow(node, owner, some)),
    }


def _all(answering: Sequence[Entry], key: str) -> list[Entry]:
    return [one for entry in answering for one in entry.get(key, ())]


def _by(found: Sequence[Entry], key: str, merged: Callable[[str, Sequence[Entry]], Entry]) -> list[Entry]:
    names = dict.fromkeys(one[key] for one in found)
    return [merged(name, [one for one in found if one[key] == name]) for name in names]


def _queue(node: str, hop: str, found: Sequence[Entry]) -> Entry:
    first = min(found, key=lambda one: _place(one["status"], _STATUSES))
    return {
        **first,
        "identity": f"{node}\\{hop}",
        **{
            key: sum(one[key] for one in found)
            for key in ("messages", "waiting", "recipients", "active", "asking", "exposed", "unread")
        },
        "oldest": min(one["oldest"] for one in found),
        "next_attempt": least(one["next_attempt"] for one in found),
        "overdue_since": least(one.get("overdue_since") for one in found),
        "last_error": first["last_error"] or _first(found, "last_error"),
        "why": first["why"] or _first(found, "why"),
        "suspension": _first(found, "suspension") or None,
        **_sessions(found),
    }


def _sessions(found: Sequence[Entry]) -> Entry:
    """What is known of a next hop, whether mail waits for it or not."""
    waits = min((one for one in found if one["awaits"]), key=lambda one: one["awaits_since"], default=None)
    resting = [one["rests_until"] for one in found]
    return {
        "sessions": sum(one["sessions"] for one in found),
        "places": sum(one["places"] for one in found),
        "failures": max(one["failures"] for one in found),
        "rests_until": max(filter(None, resting), default=None),
        "awaits": waits["awaits"] if waits else "",
        "awaits_since": waits["awaits_since"] if waits else None,
        "hosts": _hosts([host for one in found for host in one["hosts"]]),
    }


def _hosts(found: Sequence[Entry]) -> list[Entry]:
    by_name: dict[tuple[int, str, str], list[Entry]] = {}
    for one in found:
        by_name.setdefault((one["group"], one["route"], one["host"]), []).append(one)
    return [
        {
            **some[0],
            "sessions": sum(one["sessions"] for one in some),
            "failures": max(one["failures"] for one in some),
            "last_error": max(some, key=lambda one: one["failures"])["last_error"],
            "rests_until": max(filter(None, (one["rests_until"] for one in some)), default=None),
        }
        for some in by_name.values()
    ]


def _hop_shadow(node: str, hop: str, found: Sequence[Entry]) -> Entry:
    worst = min(found, key=lambda one: _place(one["state"], _HOPS))
    return {
        **worst,
        "identity": f"{node}\\Shadow\\{hop}",
        "messages": sum(one["messages"] for one in found),
        "oldest": least(one["oldest"] for one in found),
        "failures": max(one["failures"] for one in found),
    }


def _shadow(node: str, owner: str, found: Sequence[Entry]) -> Entry:
    worst = min(found, key=lambda one: _place(one["primary_state"], _PRIMARIES))
    hops = [hop for one in found for hop in one["next_hops"]]
    return {
        **worst,
        "identity": f"{node}\\Shadow\\{owner}",
        "messages": sum(one["messages"] for one in found),
        "oldest": min(one["oldest"] for one in found),
        "next_hops": _by(
            hops,
            "next_hop",
            lambda hop, some: {
                "next_hop": hop,
                "messages": sum(one["messages"] for one in some),
                "recipients": sum(one["recipients"] for one in some),
            },
        ),
    }


def _next_hop(node: str, answering: Sequence[Entry]) -> Entry:
    found = [one["queue"] for one in answering if one["queue"]]
    attempts = [one for entry in answering for one in entry.get("attempts", ())]
    return {
        "queue": _queue(node, found[0]["next_hop"], found) if found else None,
        **_sessions(answering),
        "error": _first(answering, "error"),
        "suspension": _first(answering, "suspension") or None,
        "attempts": sorted(attempts, key=lambda one: str(one["at"]), reverse=True)[:_ATTEMPTS],
    }


def _first(found: Sequence[Entry], key: str) -> object:
    return next(filter(None, (one.get(key) for one in found)), "")


def _place(state: str, order: Sequence[str]) -> int:
    return order.index(state) if state in order else 0
