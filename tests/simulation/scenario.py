"""Scenarios in text: commands above ``----``, what they led to below, rewritten by ``--record``.

Commands, one per line (``#`` begins a comment):

    boundary 2|3|4|2x4 [reject] [scrub] [pressed] [at-once=2] [together=mx1+mx2] [name=value ...]   first;
                                             2x4: two hosts of four workers; messages that a transaction goes
                                             through, members on one machine, and policy fields by name,
                                             durations in seconds
    send mx1 m1 to a@example.net b@inside.example   a client sends; it does not retry
    send mx1 stranger m1 to a@example.net    a client that did not log in
    send mx1 m1 quarantined to a@example.net   by filters of that node; or discarded, refused, put-off
    wait 3                                   seconds
    crash|start|freeze|thaw mx1              start opens the same disk
    lose-disk|snapshot|roll-back mx1         snapshot when it runs, the others while it is down
    cut mx1 mx2 | cut mx1 > mx2 | heal       both ways, one way; heal mends every link
    slow mx1 > mx2 2                         the next packet that way takes that long
    commits 0.05                             take that long, on every node
    hand-over mx1                            its queue, to the holders that it reaches
    turn mx1 off|on                          shadow redundancy, for all members
    span mx1 4                               the time span of promotion, for all members, in seconds
    redirect mx1 mx3                         its queue, to that member, whether or not it holds copies
    close example.net | open example.net     a next hop that answers 4xx, or no longer does
    lose-reply example.net                   of its next acceptance
    odd-reply example.net                    its next answer to a content cannot be read
    hang example.net 12                      the next attempt takes so long to get as far as the content
    when <point>: <command>                  once, at that instant: see below
    drain                                    faults are over; wait until everything is quiet
    clock mx1 +10800                         its wall clock steps
    damage mx1 m1 content|row                on its disk, found when it is read
    page mx1 m1 1|none                       of the message, as its first commit left it, or none at all
    expire                                   what goes by age, on every node
    resubmit mx1 r1 [since=8] [until=2] [next-hop=…] [recipient=…] [gone=mx2]   an operator asks for what was
                                             delivered, from so many seconds ago until so many seconds ago
    pause|resume|remove mx1 r1               the request, on that node
    press mx1 data_disk 96                   so much of that resource is used from now on (``pressed``)
    order mx1 remove|suspend|resume|bounce m1   an operator does that to the message, on that node

Points are tracking events as they are printed (``HARECEIVE mx2 m1``), ``offers mx1 m1 mx2`` (before it
leaves), ``acknowledged mx1 m1 mx2`` (before it is recorded), ``taken m1``, ``answered m1 250``,
``greeting mx1 mx2`` (before it leaves), and ``greets mx1 mx2`` (mx2 reads it). Recipients at ``bad`` are
refused by their next hop; ``dsn(m1,2)`` is the report about a recipient, ``r1(m1)`` what was made of m1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path

from shadowrelay.core.events.reports import ReportKind, report_id, resubmitted_id
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.jobs import Verb
from shadowrelay.core.pressure import Inflow, Resource
from shadowrelay.core.requests import RequestState, Selector

from . import by_hand, operators, pressing, rot
from .checks import Broken, Invariants, judge, unrest
from .clients import Client
from .filters import Filtered
from .hosts import workers
from .memory_ledger import Disagreement
from .node import Node
from .seeds import FOUR, SCALED, make_boundary, together
from .world import Impairment, Noise, World, seconds

FOLDER = Path(__file__).parent / "scenarios"
WIDTH = 110
QUIET = Noise(delay=(0.005, 0.005), commit=(0.002, 0.002))


class Scenario:
    """One text, run from the top."""

    def __init__(self) -> None:
        self.world: World
        self.checks: Invariants
        self.names: dict[str, str] = {}  # id to m1
        self.told: list[str] = []
        self.when: list[tuple[str, str]] = []
        self.wrong: dict[str, list[Impairment]] = {}
        self.clients = self.requests = 0
        self.boundary(["2"])

    def run(self, text: str) -> str:
        """The same text with the output that it has now."""
        blocks = []
        for block in re.split(r"\n\s*\n", text.strip()):
            above = re.split(r"^----$", block, flags=re.MULTILINE)[0].rstrip("\n")
            self.told = []
            failed = ""
            for line in above.splitlines():
                command = line.split("#")[0].strip() if not line.startswith("#") else ""
                if command:
                    try:
                        self.command(command)
                    except (Broken, Disagreement) as error:
                        failed = f"BROKEN {self._named(str(error))}"
                        break
            output = list(wrapped([*self.told, failed] if failed else self.told))
            blocks.append("\n".join([above, *(["----", *output] if output else [])]))
            if failed:
                break
        return "\n\n".join(blocks) + "\n"

    # Commands.

    def command(self, line: str) -> None:
        verb, *words = line.split()
        if verb == "when":
            point, _, rest = line.removeprefix("when ").partition(": ")
            self.when.append((point, rest))
            return
        method: Callable[[list[str]], None] = getattr(self, verb.replace("-", "_"))
        method(words)

    def boundary(self, words: list[str]) -> None:
        policy = replace(SCALED, reject_message_on_shadow_failure="reject" in words)
        known = {field.name for field in fields(policy)}
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name in known:
                current = getattr(policy, name)
                changed = seconds(float(value)) if isinstance(current, timedelta) else int(value)
                policy = replace(policy, **{name: changed})
        shared = next((word.partition("=")[2] for word in words if word.startswith("together=")), "")
        hosts, several, each = words[0].partition("x")
        places = (
            workers(int(hosts), int(each)) if several else together(FOUR[: int(hosts)], shared.split("+"))
        )
        self.world = World(0, policy, places)
        self.world.at_once = next((int(word[8:]) for word in words if word.startswith("at-once=")), 1000)
        self.world.noise = QUIET
        self.world.observed = True
        if "pressed" in words:
            self.world.readings = {place.name: {} for place in places}
        self.world.scrub = "scrub" in words
        self.world.on = self._point
        self.checks = make_boundary(self.world, sql="sql" in words)
        for node in self.world.nodes.values():
            node.boundary._turn = 0
        for sink in self.world.hops.values():
            sink.delay = (0.01, 0.01)
        self.world.run(1.0)

    def send(self, words: list[str]) -> None:
        stranger = words[1] == "stranger" and bool(words.pop(1))
        becomes = Filtered.CHANGED if words[2] == "to" else Filtered(words.pop(2))
        home, name, _, *addresses = words
        self.clients += 1
        message_id = MessageId(f"01900000-0000-7000-8000-{self.clients:012d}")
        self.names[message_id] = name
        recipients = tuple(
            (number, address, address.partition("@")[2]) for number, address in enumerate(addresses, 1)
        )
        self._name_what_is_made()
        for number, _, _ in recipients:
            self.names[report_id(message_id, number, ReportKind.FAILED)] = f"dsn({name},{number})"
        client = Client(
            self.world,
            self.checks,
            self.clients,
            "sender@example.org",
            recipients,
            (ServerName(home),),
            tries=1,
        )
        client.fixed_id, client.becomes = message_id, becomes
        client.inflow = Inflow.OUTSIDE if stranger else Inflow.TRUSTED
        client.submit()

    def wait(self, words: list[str]) -> None:
        self.world.run(self.world.now + float(words[0]))

    def crash(self, words: list[str]) -> None:
        node = self.world.nodes[ServerName(words[0])]
        if node.up:
            self._impair("crash", words[0])
            node.crash()

    def start(self, words: list[str]) -> None:
        node = self.world.nodes[ServerName(words[0])]
        if node.up:
            return
        for entry in self.wrong.pop(words[0], []):
            entry.end = self.world.now
        node.open()

    def lose_disk(self, words: list[str]) -> None:
        self._relabel(words[0], "disk lost")
        self.world.nodes[ServerName(words[0])].lose_disk()
        self.checks.everything()

    def snapshot(self, words: list[str]) -> None:
        ledger = self.world.nodes[ServerName(words[0])].ledger
        if ledger.dirty:
            self.world.nodes[ServerName(words[0])].wants_snapshot = True
        else:
            self.world.nodes[ServerName(words[0])].snapshots.append(ledger.snapshot())

    def roll_back(self, words: list[str]) -> None:
        node = self.world.nodes[ServerName(words[0])]
        self._relabel(words[0], "rolled back")
        node.roll_back(node.snapshots[-1])
        self.checks.disk_back(node)

    def freeze(self, words: list[str]) -> None:
        self._impair("freeze", words[0])
        self.world.nodes[ServerName(words[0])].freeze()

    def thaw(self, words: list[str]) -> None:
        for entry in self.wrong.pop(words[0], []):
            entry.end = self.world.now
        self.world.nodes[ServerName(words[0])].thaw()

    def turn(self, words: list[str]) -> None:
        self.world.nodes[ServerName(words[0])].turn(words[1] == "on")

    def span(self, words: list[str]) -> None:
        self.world.nodes[ServerName(words[0])].set_span(float(words[1]))

    def redirect(self, words: list[str]) -> None:
        self.world.nodes[ServerName(words[0])].redirect(ServerName(words[1]))

    def hand_over(self, words: list[str]) -> None:
        self.world.nodes[ServerName(words[0])].hand_over()

    def cut(self, words: list[str]) -> None:
        one, other = words[0], words[-1]
        self.world.blocked |= {(one, other)} if ">" in words else {(one, other), (other, one)}
        if "client" not in (one, other):
            self.wrong.setdefault("links", []).append(self.world.impair("partition", one, other))

    def heal(self, _: list[str]) -> None:
        self.world.blocked.clear()
        for entry in self.wrong.pop("links", []):
            entry.end = self.world.now

    def slow(self, words: list[str]) -> None:
        self.world.slow.setdefault((words[0], words[2]), []).append(float(words[3]))

    def commits(self, words: list[str]) -> None:
        self.world.noise = replace(QUIET, commit=(float(words[0]), float(words[0])))

    def close(self, words: list[str]) -> None:
        self.world.hops[NextHop(words[0])].closed_until = float("inf")

    def open(self, words: list[str]) -> None:
        self.world.hops[NextHop(words[0])].closed_until = 0.0

    def lose_reply(self, words: list[str]) -> None:
        self.world.hops[NextHop(words[0])].lose_next += 1

    def odd_reply(self, words: list[str]) -> None:
        self.world.hops[NextHop(words[0])].odd_next += 1

    def hang(self, words: list[str]) -> None:
        self.world.hops[NextHop(words[0])].hanging.append(float(words[1]))

    def clock(self, words: list[str]) -> None:
        self.world.nodes[ServerName(words[0])].machine.offset += float(words[1])

    def damage(self, words: list[str]) -> None:
        node, message_id = self._stored(words)
        if words[2] == "content":
            contents = node.ledger.state.contents
            keeper = node.ledger.state.keeper(message_id)
            contents[keeper] = contents[keeper][:-1] + b"?"
        elif words[2] == "event":
            events = node.ledger.state.events.values()
            (number,) = [one.number for one in events if one.verdict.message_id == message_id]
            node.ledger.rot_event(number)
            return
        else:
            node.ledger.rot_row(message_id)
        self.checks.rotted(node, [message_id], rot.CONTENT if words[2] == "content" else rot.ROW)

    def page(self, words: list[str]) -> None:
        node, message_id = self._stored(words)
        former = (None, None) if words[2] == "none" else node.versions[message_id][int(words[2]) - 1]
        node.ledger.put_back(message_id, *former)
        self.checks.rotted(node, [message_id], rot.PAGE)

    def _stored(self, words: list[str]) -> tuple[Node, MessageId]:
        (message_id,) = [MessageId(key) for key, name in self.names.items() if name == words[1]]
        return self.world.nodes[ServerName(words[0])], message_id

    def expire(self, _: list[str]) -> None:
        for node in self.world.nodes.values():
            node.expire()

    def resubmit(self, words: list[str]) -> None:
        node, name = self.world.nodes[ServerName(words[0])], words[1]
        given = dict(word.split("=", 1) for word in words[2:])
        self.requests += 1
        id_ = RequestId(f"01900000-0000-7000-9000-{self.requests:012d}")
        self.names[id_] = name
        self._name_what_is_made()
        now, hop = node.clock(), given.get("next-hop")
        selector = Selector(
            since=now - seconds(float(given.get("since", 3600))),
            until=now - seconds(float(given.get("until", 0))),
            next_hops=(NextHop(hop),) if hop else (),
            recipient=given.get("recipient"),
        )
        gone = tuple(ServerName(one) for one in given.get("gone", "").split("+") if one)
        operators.add(node, id_, selector, gone)

    def press(self, words: list[str]) -> None:
        pressing.read(self.world, ServerName(words[0]), Resource(words[1]), float(words[2]))

    def _name_what_is_made(self) -> None:
        requests = [(id_, name) for id_, name in self.names.items() if name[0] == "r"]
        messages = [(id_, name) for id_, name in self.names.items() if name[0] == "m"]
        for request, asked in requests:
            for message_id, name in messages:
                self.names[resubmitted_id(RequestId(request), MessageId(message_id))] = f"{asked}({name})"

    def order(self, words: list[str]) -> None:
        node, message_id = self._stored([words[0], words[2]])
        by_hand.give(node, Verb(words[1]), message_id, None)
        self._look()

    def _look(self) -> None:
        by_hand.look(self.world)
        self.world.after(by_hand.LOOK, self._look)

    def pause(self, words: list[str]) -> None:
        self._change(words, RequestState.PAUSED)

    def resume(self, words: list[str]) -> None:
        self._change(words, RequestState.RUNNING)

    def remove(self, words: list[str]) -> None:
        self._change(words, RequestState.REMOVED)

    def _change(self, words: list[str], state: RequestState) -> None:
        (id_,) = [RequestId(key) for key, name in self.names.items() if name == words[1]]
        operators.change(self.world.nodes[ServerName(words[0])], id_, state)

    def drain(self, _: list[str]) -> None:
        """Until everything is quiet, then the sums: nothing may be lost, every duplicate has its cause."""
        self.world.run(self.world.now + 1.0)
        deadline = self.world.now + 120.0
        while (problem := unrest(self.world) or pressing.unrest(self.world)) and self.world.now < deadline:
            self.world.run(self.world.now + 0.5)
        self.checks.everything()
        verdict = judge(self.checks)
        if problem:
            self.told.append(f"NOT QUIET {self._named(problem)}")
        self.told += [f"PROBLEM {self._named(text)}" for text in verdict.problems]
        duplicates = ", ".join(f"{count} {cause}" for cause, count in verdict.duplicates.items() if count)
        back = f", given back {verdict.resubmitted}" if self.world.requests else ""
        sums = f"lost {verdict.lost}, unexpected {verdict.unexpected}, duplicates: {duplicates or 0}{back}"
        self.told.append(f"quiet: {sums}")

    # What happens meanwhile.

    def _impair(self, kind: str, name: str) -> None:
        self.wrong.setdefault(name, []).append(self.world.impair(kind, name))

    def _relabel(self, name: str, kind: str) -> None:
        for entry in self.wrong.get(name, []):
            entry.kind = kind

    def _named(self, text: str) -> str:
        for message_id, name in self.names.items():
            text = text.replace(message_id, name)
        for node in self.world.nodes.values():
            text = text.replace(node.ledger.state.database_id, f"database of {node.name}")
        return text

    def _point(self, raw: str) -> None:
        point = self._named(raw)
        kind, *words = point.split()
        if kind == "answered":
            self.told.append(f"{words[1]} {words[0]}")
        elif kind == "confirmed":
            self.told.append(f"{words[0]} of {words[1]} is confirmed")
        elif kind == "taken":
            self.told.append(f"taken {' '.join(words)}")
        elif kind == "event":
            point = " ".join(words)
            self.told.append(point)
        for entry in list(self.when):
            awaited, command = entry
            if point == awaited or point.startswith(f"{awaited} "):
                self.when.remove(entry)
                self.command(command)


def wrapped(items: list[str]) -> Iterator[str]:
    """Joined with bars, in lines of a readable length."""
    line = ""
    for item in items:
        if line and len(line) + len(item) + 3 > WIDTH:
            yield f"{line} |"
            line = item
        else:
            line = f"{line} | {item}" if line else item
    if line:
        yield line


def told(text: str) -> list[str]:
    """What is said below the commands, one thing after the other."""
    blocks = [block.partition("\n----\n")[2] for block in re.split(r"\n\s*\n", text.strip())]
    return [said.removesuffix(" |") for block in blocks for said in re.split(r" \| | \|\n|\n", block) if said]


def verdicts(text: str) -> list[str]:
    """What of it says how things ended: the sums, and every problem."""
    return [said for said in told(text) if said.startswith(("quiet: ", "PROBLEM ", "NOT QUIET ", "BROKEN "))]


def run_file(path: Path) -> tuple[str, str]:
    """The recorded text, and what it is now."""
    text = path.read_text("utf-8")
    return text, Scenario().run(text)


def record() -> list[str]:
    """Rewrite every scenario that says something else now; their names."""
    changed = []
    for path in sorted(FOLDER.glob("*.txt")):
        before, after = run_file(path)
        if before != after:
            path.write_text(after, "utf-8")
            changed.append(path.name)
    return changed
