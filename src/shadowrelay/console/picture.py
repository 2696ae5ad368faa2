"""Draws the members and the copies that they keep of each other's mail, as one picture in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from shadowrelay.console.words import many, number, short
from shadowrelay.core.operating import Told

Spot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A member in the picture. ``state``: ``here`` (it answers), ``away``, ``drained`` or ``unknown``."""

    name: str
    state: str
    own: int | None  # messages in its queue; None: it does not answer
    held: int
    exposed: int = 0
    promoting: int = 0
    told: str = ""  # of a member that is away: what happens next
    silent: str = ""  # of a node of whose workers some do not answer: how many


@dataclass(frozen=True, slots=True)
class KeptCopies:
    """How many copies ``holder`` keeps of the mail of ``owner``. ``away``: one of both does not answer."""

    owner: str
    holder: str
    count: int
    away: bool = False


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in units of the picture; ``kind`` tells two pictures on one page apart."""

    kind: str
    wide: float
    high: float
    box: Spot
    across: float  # radii of the ellipse on which the members stand
    down: float
    bend: float = 26.0


WIDE = Geometry("wide", 760, 400, (196, 84), 262, 142)
NARROW = Geometry("narrow", 400, 400, (136, 80), 128, 140, bend=20.0)


def members(nodes: Sequence[Told]) -> tuple[list[Box], list[KeptCopies]]:
    """What to draw, from the entries of a view over all members (``asking``)."""
    answers = {one["node"]: one["status"] for one in nodes if one["answers"]}
    retired = {p["name"] for status in answers.values() for p in status["peers"] if p["retired"]}
    names = [one["node"] for one in nodes]
    for status in answers.values():
        names += [p["name"] for p in status["peers"] if p["name"] not in names]
    names = [name for name in dict.fromkeys(names) if name not in retired]
    copies = [found for owner in names for holder in names if (found := _between(answers, owner, holder))]
    silent = {one["node"]: _silent(one) for one in nodes}
    return [replace(_box(answers, name), silent=silent.get(name, "")) for name in sorted(names)], copies


def _silent(entry: Told) -> str:
    """Of a node that answers: how many of its workers do not; else empty."""
    workers = entry.get("workers", ())
    away = sum(not one["answers"] for one in workers)
    return f"{away} of {len(workers)} workers silent" if entry["answers"] and away else ""


def _peer(answers: Mapping[str, Told], node: str, name: str) -> Told | None:
    peers = answers[node]["peers"] if node in answers else ()
    return next((one for one in peers if one["name"] == name), None)


def _between(answers: Mapping[str, Told], owner: str, holder: str) -> KeptCopies | None:
    """The holder knows best what it keeps; of one that is silent, the owner says what it counts on."""
    if owner == holder:
        return None
    there, ours = _peer(answers, holder, owner), _peer(answers, owner, holder)
    if there is None and ours is None:
        return None
    count = there["shadow_held"] if there else ours["holds_ours"] if ours else 0
    silent = owner not in answers or holder not in answers
    apart = any(one is not None and one["state"] == "unreachable" for one in (there, ours))
    return KeptCopies(owner, holder, count, away=silent or apart)


def _box(answers: Mapping[str, Told], name: str) -> Box:
    status = answers.get(name)
    if status is None:
        seen = [peer for node in answers if (peer := _peer(answers, node, name))]
        told = next((peer["next"] for peer in seen if peer["next"]), "")
        state = "away" if any(peer["state"] == "unreachable" for peer in seen) else "unknown"
        return Box(name, state, None, 0, told=told)
    return Box(
        name,
        "drained" if status["draining"] else "here",
        status["queued"],
        status["shadow_held"],
        status["exposed"],
        status["promoting"],
    )


def described(boxes: Sequence[Box], copies: Sequence[KeptCopies]) -> str:
    """The picture in words, for who does not see it."""
    told = []
    for one in boxes:
        if one.own is None:
            told.append(f"{short(one.name)} does not answer.")
        else:
            told.append(f"{short(one.name)} has {many(one.own, 'message')} in its queue.")
            if one.silent:
                told.append(f"At {short(one.name)} {one.silent}.")
    for pair in copies:
        if pair.count:
            kept = many(pair.count, "copy", "copies")
            told.append(f"{short(pair.holder)} keeps {kept} of the mail of {short(pair.owner)}.")
    return " ".join(told)


def picture(boxes: Sequence[Box], copies: Sequence[KeptCopies], at: Geometry) -> Markup:
    """Members on an ellipse; a curve for each pair and direction, with an arrow at who keeps the copies."""
    places = dict(zip((one.name for one in boxes), _places(len(boxes), at), strict=True))
    drawn = [*_markers(at)]
    drawn += [part for one in copies for part in _curve(one, places, at)]
    drawn += [part for one in boxes for part in _drawn(one, places[one.name], at)]
    drawn += [part for one in copies for part in _label(one, places, at)]
    return Markup(
        '<svg class="members is-{kind}" viewBox="0 0 {wide:g} {high:g}" role="img" aria-label="{told}">'
        "{body}</svg>"
    ).format(
        kind=at.kind, wide=at.wide, high=at.high, told=described(boxes, copies), body=Markup("").join(drawn)
    )


def _places(count: int, at: Geometry) -> list[Spot]:
    middle = (at.wide / 2, at.high / 2)
    if count == 1:
        return [middle]
    begin = math.pi if count == 2 and at.kind == "wide" else -math.pi / 2
    angles = [begin + 2 * math.pi * one / count for one in range(count)]
    found = [(middle[0] + at.across * math.cos(one), middle[1] + at.down * math.sin(one)) for one in angles]
    low, high = min(y for _, y in found), max(y for _, y in found)
    shift = middle[1] - (low + high) / 2  # a triangle stands in the middle too
    return [(x, y + shift) for x, y in found]


def _markers(at: Geometry) -> Iterator[Markup]:
    for name in ("on", "off", "away"):
        yield Markup(
            '<marker id="{kind}-{name}" class="head {name}" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0.6 L7.4,4 L0,7.4 Z"/></marker>'
        ).format(kind=at.kind, name=name)


def _kind(one: KeptCopies) -> str:
    return "away" if one.away else "on" if one.count else "off"


def _ends(one: KeptCopies, places: Mapping[str, Spot], at: Geometry) -> tuple[Spot, Spot, Spot]:
    """Where the curve begins, what bends it, and where it ends: at the edges of the boxes."""
    (x1, y1), (x2, y2) = places[one.owner], places[one.holder]
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    nx, ny = (y2 - y1) / length, -(x2 - x1) / length  # the two directions of a pair bend apart
    away = at.bend * 0.42
    begin = _edge((x1 + nx * away, y1 + ny * away), (x1, y1), (x2 - x1, y2 - y1), at)
    end = _edge((x2 + nx * away, y2 + ny * away), (x2, y2), (x1 - x2, y1 - y2), at)
    middle = ((begin[0] + end[0]) / 2 + nx * at.bend, (begin[1] + end[1]) / 2 + ny * at.bend)
    return begin, middle, end


def _edge(start: Spot, box: Spot, towards: Spot, at: Geometry) -> Spot:
    """Where a line from ``start`` leaves the box, with a little room."""
    half = (at.box[0] / 2 + 6, at.box[1] / 2 + 6)
    steps = []
    for axis in (0, 1):
        if abs(towards[axis]) > 1e-9:
            wall = box[axis] + math.copysign(half[axis], towards[axis])
            steps.append((wall - start[axis]) / towards[axis])
    step = min((one for one in steps if one > 0), default=0.0)
    return start[0] + towards[0] * step, start[1] + towards[1] * step


def _curve(one: KeptCopies, places: Mapping[str, Spot], at: Geometry) -> Iterator[Markup]:
    (x1, y1), (cx, cy), (x2, y2) = _ends(one, places, at)
    yield Markup(
        '<path class="copies {kind}" marker-end="url(#{where}-{kind})" '
        'd="M{x1:.1f},{y1:.1f} Q{cx:.1f},{cy:.1f} {x2:.1f},{y2:.1f}"/>'
    ).format(kind=_kind(one), where=at.kind, x1=x1, y1=y1, cx=cx, cy=cy, x2=x2, y2=y2)


def _label(one: KeptCopies, places: Mapping[str, Spot], at: Geometry) -> Iterator[Markup]:
    if not one.count:
        return
    (x1, y1), (cx, cy), (x2, y2) = _ends(one, places, at)
    x, y = 0.25 * x1 + 0.5 * cx + 0.25 * x2, 0.25 * y1 + 0.5 * cy + 0.25 * y2
    text = number(one.count)
    half = 9 + 4.6 * len(text)
    yield Markup(
        '<g class="count {kind}"><rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="24" rx="12"/>'
        '<text x="{x:.1f}" y="{base:.1f}">{text}</text></g>'
    ).format(kind=_kind(one), left=x - half, top=y - 12, wide=2 * half, x=x, base=y + 5, text=text)


def _drawn(one: Box, place: Spot, at: Geometry) -> Iterator[Markup]:
    x, y = place
    wide, high = at.box
    left, top = x - wide / 2, y - high / 2
    yield Markup(
        '<g class="member {state}"><rect x="{left:.1f}" y="{top:.1f}" width="{wide:g}" height="{high:g}" '
        'rx="12"/>'
        '<circle cx="{dot:.1f}" cy="{line:.1f}" r="5"/>'
        '<text class="name" x="{text:.1f}" y="{base:.1f}">{name}</text>'
    ).format(
        state="exposed" if one.exposed else "away" if one.silent else one.state,
        left=left, top=top, wide=wide, high=high, dot=left + 19, line=top + 25, text=left + 33, base=top + 31,
        name=short(one.name),
    )  # fmt: skip
    for at_line, text in enumerate(_lines(one), 0):
        yield Markup('<text x="{x:.1f}" y="{y:.1f}">{text}</text>').format(
            x=left + 14, y=top + 53 + 18 * at_line, text=text
        )
    yield Markup("</g>")


def _lines(one: Box) -> list[str]:
    if one.own is None:
        return ["does not answer" if one.state == "away" else "not asked yet"]
    second = f"keeps {many(one.held, 'copy', 'copies')}"
    if one.promoting:
        second = f"promotes {number(one.promoting)}"
    elif one.exposed:
        second = f"{number(one.exposed)} exposed"
    elif one.silent:
        second = one.silent
    elif one.state == "drained":
        second = "is being drained"
    return [f"{number(one.own)} queued", second]
