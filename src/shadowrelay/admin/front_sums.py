"""One answer for a node, made of those of its workers: drain, scrub, redirect, reload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shadowrelay.admin.passing import Said
from shadowrelay.core.identifiers import ServerName
from shadowrelay.operator.view import Json

_NOT_SOUND = ("damaged_content", "damaged_rows", "damaged_indexes", "mended", "unreadable")
_ROUND = ("messages", "octets", "compared", *_NOT_SOUND)


def each(said: Sequence[Said]) -> list[Json]:
    """What each worker answered, or why it did not."""
    return [
        {
            **(one.json if one.done else {}),
            "worker": one.worker.number,
            "name": one.worker.name,
            "answers": one.done,
            "why": "" if one.done else one.sentence,
        }
        for one in said
    ]


def drained(name: ServerName, said: Sequence[Said]) -> Json:
    """A drain is done when every worker says so; one that does not answer has mail, for all we know."""
    found = _told(said)
    return {
        "name": name,
        "draining": all(one["draining"] for one in found),
        "done": all(one["done"] for one in found) and _all_say(said),
        **{key: _sum(found, key) for key in ("arriving", "queued", "exposed", "set_aside")},
        **{
            key: _by_name(found, key)
            for key in ("held_for", "held_by", "handed_over", "not_yet_taken", "kept_for_hops")
        },
        "workers": each(said),
    }


def timed(said: Sequence[Said]) -> Json:
    """The workers of one machine have one wall clock: the one that doubts it most speaks."""
    found = max(_told(said), key=lambda one: len(one["doubts"]))
    return {**found, "workers": each(said)}


def scrubbed(said: Sequence[Said]) -> Json:
    """The round of the node is as far as those of its workers together."""
    found = _told(said)
    of = _sum(found, "octets_of")
    began = any(one["progress"] is not None for one in found)
    lasts = [one["last"] for one in found]
    least = min((one["progress"] or 0.0 for one in found), default=0.0)
    whole = all(lasts) and _all_say(said)
    answer = {
        "interval": max(one["interval"] for one in found),
        "progress": (round(_sum(found, "octets") / of, 4) if of else least) if began else None,
        "round": min(one["round"] for one in found),
        "began_at": _first(found, "began_at"),
        "at_once": any(one["at_once"] for one in found),
        "complete_at": _when_all(found, "complete_at"),
        **{key: _sum(found, key) for key in (*_ROUND, "messages_of", "octets_of")},
        "rebuilt": _names(found),
        "last": _last(lasts) if whole else None,
        "workers": each(said),
    }
    return answer | (
        {"begun": min(one["begun"] for one in found)} if all("begun" in one for one in found) else {}
    )


def _names(rounds: Sequence[Json]) -> list[str]:
    return sorted({name for one in rounds for name in one["rebuilt"]})


def _last(lasts: Sequence[Json]) -> Json:
    """The last complete rounds of all workers as one."""
    return {
        "round": min(one["round"] for one in lasts),
        "began_at": _first(lasts, "began_at"),
        "at_once": all(one["at_once"] for one in lasts),
        **{key: _sum(lasts, key) for key in (*_ROUND, "messages_of", "octets_of")},
        "rebuilt": _names(lasts),
        "complete_at": _when_all(lasts, "complete_at"),
        "seconds": max(one["seconds"] for one in lasts),
    }


def redirected(name: ServerName, said: Sequence[Said]) -> Json:
    """The redirects of all workers as one; a worker that has none counts for nothing."""
    found = [one for one in _told(said) if one["to"] is not None]
    if not found:
        return {"name": name, "running": False, "to": None, "workers": each(said)}
    ends = [one["ended"] for one in found if one["ended"]]
    return {
        "name": name,
        "running": any(one["running"] for one in found),
        "to": found[0]["to"],
        "began_at": _first(found, "began_at"),
        "done": all(one["done"] for one in found) and _all_say(said),
        "ended": None if len(ends) < len(found) else next((end for end in ends if end != "done"), "done"),
        **{key: _sum(found, key) for key in ("queued", "handed_over", "copied", "not_yet_taken")},
        "left": _by_name(found, "left"),
        "reply": next((one["reply"] for one in found if one["reply"]), ""),
        "warning": next((one["warning"] for one in found if one["warning"]), ""),
        "workers": each(said),
    }


def reloaded(name: ServerName, said: Sequence[Said], wrong: Iterable[str] = ()) -> Json:
    """All workers read one file. ``wrong``: what the supervisor says of the file. A worker that does not
    answer takes the file at its start.
    """
    found = _told(said)
    return {
        "name": name,
        "taken": bool(found) and all(one["taken"] for one in found),
        "now": _once(found, "now"),
        "restart": _once(found, "restart"),
        "wrong": list(dict.fromkeys([*_once(found, "wrong"), *wrong])),
        "warnings": _once(found, "warnings"),
        "workers": each(said),
    }


def _told(said: Sequence[Said]) -> list[Json]:
    return [one.json for one in said if one.done]


def _all_say(said: Sequence[Said]) -> bool:
    return all(one.done for one in said)


def _sum(found: Sequence[Json], key: str) -> int:
    return sum(one[key] for one in found)


def _by_name(found: Sequence[Json], key: str) -> dict[str, int]:
    names = dict.fromkeys(name for one in found for name in one[key])
    return {name: sum(one[key].get(name, 0) for one in found) for name in names}


def _once(found: Sequence[Json], key: str) -> list[Any]:
    """What any of them lists, each once."""
    every: list[Any] = []
    for one in found:
        every += [item for item in one[key] if item not in every]
    return every


def _first(found: Sequence[Json], key: str) -> str | None:
    return _of_times(found, key, min)


def _when_all(found: Sequence[Json], key: str) -> str | None:
    """The time when the last one was; None while it is not so for all."""
    return _of_times(found, key, max) if all(one[key] for one in found) else None


def _of_times(found: Sequence[Json], key: str, of: Callable[[list[str]], str]) -> str | None:
    times = [one[key] for one in found if one[key]]
    return of(times) if times else None
