"""Draws one frame of ``shadowrelay top`` as lines of text that fit a width."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from shadowrelay.cli.top_figures import RATES, SeenNode, TopFigures, TopQueue, figures, quantile
from shadowrelay.cli.viewing import clean
from shadowrelay.shown.nodes import node_name

MOST_QUEUES = 12
_LEAST = 40  # columns


class Sorted(StrEnum):
    """By what the queues are sorted."""

    MESSAGES = "messages"
    AGE = "age"
    NAME = "name"

    def next(self) -> Sorted:
        order = list(Sorted)
        return order[(order.index(self) + 1) % len(order)]


@dataclass(frozen=True, slots=True)
class TopLine:
    """A line of a frame; ``bad`` is shown in red, ``head`` in bold."""

    text: str
    bad: bool = False
    head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopFrame:
    """What a frame shows. ``events``: the newest last."""

    nodes: Sequence[SeenNode]
    events: Sequence[str]
    now: datetime
    sorted_by: Sorted = Sorted.MESSAGES
    paused: bool = False


def draw(frame: TopFrame, width: int, height: int = 1000) -> list[TopLine]:
    """The lines: at most ``width`` columns and ``height`` lines, the newest events last."""
    width = max(width, _LEAST)
    every = figures(frame.nodes)
    lines = [*_head(frame, every), TopLine(""), *_queues(frame, every, width)]
    lines += [TopLine(""), *_members(frame, width)]
    room = height - len(lines) - 2
    if frame.events and room > 0:
        lines += [TopLine(""), TopLine("events", head=True)]
        lines += [TopLine(text) for text in frame.events[-room:]]
    return [TopLine(_cut(one.text, width), one.bad, one.head) for one in lines[:height]]


def _head(frame: TopFrame, every: TopFigures) -> list[TopLine]:
    nodes, away = frame.nodes, [node for node in frame.nodes if node.why]
    names = nodes[0].name + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")
    state = "  PAUSED" if frame.paused else ""
    at = frame.now.astimezone(UTC).strftime("%H:%M:%S")
    queued, exposed, doubt, aside = every["waiting"].values()
    rates = "   ".join(f"{name} {_short(every['rates'][name])}/s" for name in RATES)
    measured = every["latency"]
    shares = "  ".join(f"p{share} {_seconds(quantile(share / 100, measured))}" for share in (50, 95, 99))
    safe = f"EXPOSED {exposed}" if exposed else "exposed 0"
    lines = [
        TopLine(f"shadowrelay top   {names}   {at} UTC{state}", head=True),
        TopLine(rates),
        TopLine(f"250 after: {shares}"),
        TopLine(
            f"{safe}   queued {queued}   in doubt {doubt}   set aside {aside}",
            bad=bool(exposed),
        ),
    ]
    return lines + [TopLine(f"{node.name}: {node.why}; it is asked again", bad=True) for node in away]


def _queues(frame: TopFrame, every: TopFigures, width: int) -> list[TopLine]:
    queues = sorted(every["queues"], key=_key(frame.sorted_by))
    if not queues:
        return [TopLine("No message waits in a queue.")]
    hops = width - 24
    lines = [TopLine(f"{'queue':<{hops}}  {'messages':>9}  {'oldest':>10}", head=True)]
    for queue in queues[:MOST_QUEUES]:
        hop = _cut(clean(queue["next_hop"]), hops)
        lines.append(TopLine(f"{hop:<{hops}}  {queue['messages']:>9,}  {ago(queue['oldest']):>10}"))
    if len(queues) > MOST_QUEUES:
        lines.append(TopLine(f"and {len(queues) - MOST_QUEUES} more"))
    return lines


def _key(by: Sorted) -> Callable[[TopQueue], tuple[float, str]]:
    def key(queue: TopQueue) -> tuple[float, str]:
        order: Mapping[Sorted, float] = {Sorted.MESSAGES: -queue["messages"], Sorted.AGE: -queue["oldest"]}
        return order.get(by, 0.0), queue["next_hop"]

    return key


def _members(frame: TopFrame, width: int) -> list[TopLine]:
    names = width - 55
    lines = [
        TopLine(_member(names, "member", "state", ["queued", "exposed", "held", "in/s", "out/s"]), head=True)
    ]
    asked = {node_name(node.name) for node in frame.nodes}
    for node in frame.nodes:
        figures = (
            [str(int(node.look.value(f"{one}_messages"))) for one in ("queued", "exposed", "shadow")]
            + [_short(node.pace.rates.get(one, 0.0)) for one in ("accepted", "delivered")]
            if node.look and not node.why
            else ["–"] * 5
        )
        ready = bool(node.look and node.look.value("ready"))
        state = "no answer" if node.why else "ready" if ready else "not ready"
        bad = state != "ready"
        lines.append(TopLine(_member(names, node.name, state, figures), bad=bad))
    for name, reachable in sorted(_others(frame.nodes).items()):
        if name not in asked:
            state = "reachable" if reachable else "unreachable"
            lines.append(TopLine(_member(names, name, state, ["–"] * 5), bad=not reachable))
    return lines


def _member(names: int, name: str, state: str, figures: Sequence[str]) -> str:
    widths = (8, 8, 8, 6, 6)
    row = " ".join(f"{text:>{width}}" for text, width in zip(figures, widths, strict=True))
    return f"{_cut(clean(name), names):<{names}}  {state:<12} {row}"


def _others(nodes: Sequence[SeenNode]) -> dict[str, bool]:
    """The nodes that others speak of, and whether all of those reach all of their workers."""
    found: dict[str, bool] = {}
    for node in nodes:
        for member, seen in (node.look.peers if node.look and not node.why else {}).items():
            name = node_name(member)
            found[name] = found.get(name, True) and bool(seen.get("reachable", 1.0))
    return found


def ago(seconds: float) -> str:
    """How old something is, in few letters: ``3 min``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _seconds(found: float | None) -> str:
    if found is None:
        return "–"
    return f"{found * 1000:.0f} ms" if found < 1 else f"{found:.1f} s"


def _short(number: float) -> str:
    return f"{number:.1f}" if number < 1000 else f"{number:.0f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
