"""What nodes and workers tell of themselves, as the view of all nodes has it."""

from __future__ import annotations

from typing import Any


def a_peer(name: str, state: str = "reachable", **more: Any) -> dict[str, Any]:
    given = {
        "name": name, "site": "here", "host": "rack2", "address": f"{name}:2526", "state": state,
        "since": None, "last_contact": "2026-11-21T10:00:00.000Z", "step": "", "error": "", "failures": 0,
        "retired": False, "database_id": "d", "incarnation": "1", "sequence": 1, "applied": None,
        "shadow_held": 0, "holds_ours": 0, "events_waiting": 0, "next": "",
    }  # fmt: skip
    return given | more


def a_status(name: str, *peers: dict[str, Any], **more: Any) -> dict[str, Any]:
    scrub = {
        "interval": 60.0, "progress": 0.5, "complete_at": None, "at_once": False, "last": None, "messages": 1,
        "messages_of": 2, "octets": 10, "octets_of": 20, "damaged_content": 0, "damaged_rows": 0, "mended": 0,
    }  # fmt: skip
    given = {
        "name": name, "site": "here", "host": "rack1", "version": "1", "uptime": 5.0, "ready": True,
        "started_at": "2026-11-21T09:00:00.000Z", "not_ready_because": "", "warning": "", "draining": False,
        "redundancy": True, "settings": {"journal": "1"},
        "database_id": f"db-{name}", "incarnation": "1", "sequence": 7,
        **dict.fromkeys(
            ("queued", "exposed", "asking", "in_doubt", "set_aside", "damaged", "damaged_aside", "promoting",
             "shadow_held", "safety_net", "refused", "kept_for_hops", "discard_events", "commits",
             "resubmitted"), 0),
        "oldest_queued": None, "oldest_held": None, "overdue_since": None,
        "at_risk": 0, "at_risk_since": None, "at_risk_until": None, "risks": [],
        "held_back": [], "pressure": [],
        "acknowledged_late": {"longest": 0.0, "waiting": 0},
        "scrub": scrub, "corrupt_database": None, "peers": list(peers),
    }  # fmt: skip
    return given | more


def answers(name: str, *peers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"node": name, "answers": True, "why": "", "status": a_status(name, *peers, **more)}


def silent(name: str, why: str = "it is silent") -> dict[str, Any]:
    return {"node": name, "answers": False, "why": why}


def a_queue(name: str, hop: str, **more: Any) -> dict[str, Any]:
    given = {
        "identity": f"{name}\\{hop}", "next_hop": hop, "status": "ready", "messages": 1, "waiting": 1,
        "recipients": 2, "active": 0, "asking": 0, "exposed": 0, "unread": 0,
        "oldest": "2026-11-21T09:00:00.000Z", "next_attempt": None, "overdue_since": None,
        "last_error": "", "why": "", "suspension": None, "sessions": 1, "places": 4,
        "failures": 0, "failing_since": None, "rests_until": None, "awaits": "", "awaits_since": None,
        "hosts": [{"host": "a", "route": hop, "group": 0, "preference": 0, "weight": 1, "sessions": 1,
                   "failures": 0, "last_error": "", "rests_until": None}],
    }  # fmt: skip
    return given | more


def queues_of(name: str, *found: dict[str, Any], held: dict[str, int] | None = None) -> dict[str, Any]:
    shadows = [
        {"identity": f"{name}\\Shadow\\{owner}", "primary": owner, "primary_state": "reachable",
         "messages": many, "oldest": "2026-11-21T09:00:00.000Z", "next": "",
         "next_hops": [{"next_hop": "world", "messages": many, "recipients": many}]}
        for owner, many in (held or {}).items()
    ]  # fmt: skip
    lists = {"queues": list(found), "hop_shadow_queues": [], "shadow_queues": shadows}
    return {"node": name, "answers": True, "why": "", **lists}
