"""Is every message safe? One sentence about all members that answer, with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from shadowrelay.console.words import clock, listed, many, sentence, short
from shadowrelay.core.operating import Told
from shadowrelay.shown.differences import differences
from shadowrelay.shown.nodes import total
from shadowrelay.shown.safety_text import ONE_COPY, copies_reached, is_away, unreached, why_at_risk


class Level(StrEnum):
    """SAFE: two copies of everything can be reached. WATCH: that too, as far as is known, and somebody should
    look. EXPOSED: one more failure can lose mail, or keep it from everyone.
    """

    SAFE = "safe"
    WATCH = "watch"
    EXPOSED = "exposed"


@dataclass(frozen=True, slots=True)
class SafetyReason:
    """One sentence, and where an operator looks next."""

    level: Level
    text: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class SafetyVerdict:
    """``reasons``: the worst first."""

    level: Level
    sentence: str
    reasons: tuple[SafetyReason, ...]


def judge(nodes: Sequence[Told], now: datetime, zone: tzinfo = UTC) -> SafetyVerdict:
    """``nodes``: an entry for each member: ``node``, ``answers``, ``why``, and ``status`` if it answers."""
    told = [one for one in nodes if one["answers"]]
    reasons = sorted(
        _reasons(nodes, told, lambda at: clock(at, now, zone)),
        key=lambda one: tuple(Level).index(one.level),
        reverse=True,
    )
    level = reasons[0].level if reasons else Level.SAFE
    every = total(nodes)
    one_copy, none = copies_reached(every)
    away = unreached(nodes)
    if one_copy and one_copy == every["exposed"]:
        sentence = f"{many(one_copy, 'message has', 'messages have')} only one copy."
    elif one_copy:
        sentence = f"{many(one_copy, 'message has', 'messages have')} {ONE_COPY}."
    elif none:
        sentence = f"{many(none, 'message has', 'messages have')} no good copy."
    elif len(away) > 1:
        sentence = f"Mail that only {listed([short(one) for one in away])} have cannot be reached."
    elif level is Level.EXPOSED:
        sentence = "New messages get only one copy."
    else:
        sentence = "Every message is safe."
    if not reasons:
        reasons = [SafetyReason(Level.SAFE, _calm(every.get("queued", 0)))]
    return SafetyVerdict(level, sentence, tuple(reasons))


def _calm(queued: int) -> str:
    if not queued:
        return "No message waits for delivery."
    if queued == 1:
        return "The message that waits for delivery has a copy on another machine."
    return f"Each of the {many(queued, 'message')} that wait for delivery has a copy on another machine."


def _reasons(nodes: Sequence[Told], told: Sequence[Told], at: Callable[[str], str]) -> Iterator[SafetyReason]:
    for one in told:
        status, name = one["status"], short(one["node"])
        yield from _copies(name, status)
        yield from _operator(name, status)
    at_risk = [one for one in total(nodes).get("risks", ()) if one["member"]]
    for risk in at_risk:
        why = why_at_risk(risk, short, at)
        yield SafetyReason(Level.EXPOSED, f"{why}. {sentence(risk['advice'])}", "/messages?state=at_risk")
    yield from _silent(nodes, told, {one["member"] for one in at_risk})
    for text in differences(nodes, short):
        yield SafetyReason(Level.WATCH, sentence(text))
    if len(away := unreached(nodes)) > 1:
        names = listed([short(one) for one in away])
        yield SafetyReason(
            Level.EXPOSED,
            f"Mail of which both copies are at {names} cannot be reached, and nobody who answers can count "
            "it. Start one of them again.",
        )


def _copies(name: str, status: Told) -> Iterator[SafetyReason]:
    away = [short(peer["name"]) for peer in status["peers"] if is_away(peer)]
    here = [peer for peer in status["peers"] if not peer["retired"] and not is_away(peer)]
    if exposed := status["exposed"]:
        if not status["redundancy"]:
            why = "shadow redundancy is off"
        elif not status["peers"]:
            why = "it has no other member"
        elif not here:
            why = f"it reaches no member ({listed(away)})"
        elif refused := status["refused"]:
            why = f"members refuse {many(refused, 'copy', 'copies')}"
        else:
            why = "a copy is being made"
        yield SafetyReason(
            Level.EXPOSED,
            f"{name} has {many(exposed, 'message')} with one copy: {why}.",
            f"/messages?state=exposed&node={name}",
        )
    elif not status["redundancy"]:
        yield SafetyReason(Level.EXPOSED, f"Shadow redundancy is off at {name}.")
    elif not status["peers"]:
        yield SafetyReason(Level.EXPOSED, f"{name} is alone: nobody keeps second copies.")
    if lost := status["damaged_aside"]:
        yield SafetyReason(
            Level.EXPOSED,
            f"{name} has {many(lost, 'message')} of which no member has a good copy.",
            "/messages?state=set_aside",
        )


def _operator(name: str, status: Told) -> Iterator[SafetyReason]:
    aside = status["set_aside"] - status["damaged_aside"]
    if aside > 0:
        yield SafetyReason(
            Level.WATCH,
            f"{many(aside, 'message waits', 'messages wait')} for you at {name}.",
            "/messages?state=set_aside",
        )
    if status["damaged"]:
        yield SafetyReason(
            Level.WATCH,
            f"{name} fetches good copies of {many(status['damaged'], 'damaged message')}.",
            "/messages?state=damaged",
        )
    if status["draining"]:
        yield SafetyReason(Level.WATCH, f"{name} is being drained: it takes no mail.")
    elif not status["ready"]:
        yield SafetyReason(Level.WATCH, f"{name} takes no mail: {status['not_ready_because']}.")
    if status["warning"]:
        yield SafetyReason(Level.WATCH, f"{name}: {status['warning']}.")


def _silent(nodes: Sequence[Told], told: Sequence[Told], said: Collection[str]) -> Iterator[SafetyReason]:
    """Members that do not answer, and what becomes of their mail; but those that were ``said``."""
    silent = {one["node"]: one["why"] for one in nodes if not one["answers"]}
    partly = {one["node"] for one in told if _some_away(one.get("workers", ()), one["why"])}
    for one in told:
        if one["node"] in partly:
            yield SafetyReason(Level.WATCH, f"{short(one['node'])}: {one['why']}.")
    peers = [peer for one in told for peer in one["status"]["peers"]]
    for peer in peers:
        if is_away(peer) and peer["name"] not in partly:
            silent.setdefault(peer["name"], peer["error"])
    retired = {peer["name"] for peer in peers if peer["retired"]}
    for name in sorted(silent.keys() - retired - set(said)):
        held = sum(peer["shadow_held"] for peer in peers if peer["name"] == name)
        copies = (
            f"Members keep {many(held, 'copy', 'copies')} of its mail" if held else "No mail of it waits here"
        )
        following = next((peer["next"] for peer in peers if peer["name"] == name and peer["next"]), "")
        then = f": {following}" if following else ""
        some = max((len(peer.get("away", ())) for peer in peers if peer["name"] == name), default=0)
        of = max((len(peer.get("workers", ())) for peer in peers if peer["name"] == name), default=0)
        who = f"{short(name)} does not answer"
        if 0 < some < of and name in {one["node"] for one in told}:
            who = f"{many(some, 'worker')} of the {of} of {short(name)} cannot be reached"
        yield SafetyReason(Level.WATCH, f"{who}. {copies}{then}.")


def _some_away(workers: Sequence[Told], why: str) -> bool:
    """Does a node that answers have workers that do not?"""
    return bool(why) and any(not one["answers"] for one in workers)
