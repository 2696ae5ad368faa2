"""What is checked of resubmit requests: what is made, by whom and for whom, and that nothing is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shadowrelay.core.digests import of_content
from shadowrelay.core.identifiers import MessageId, RequestId
from shadowrelay.core.messages import Copy, Stage, Status
from shadowrelay.core.requests import Progress, Request, RequestState, Selector
from shadowrelay.core.tracking import Resubmit

from .world import LATE, SLACK, Asked, Broken, Resubmission, World, healthy_for

if TYPE_CHECKING:
    from .checks import Invariants
    from .node import Node

LOST = ("disk lost", "rolled back")
"""Faults after which a disk is another one."""

ENDED = (*LOST, "crash", "away")
"""Faults that end the process."""

Part = tuple[MessageId, int]
"""A message and one of its recipients."""


def meant(world: World, selector: Selector, part: Part) -> bool:
    """By what its sender sent: is that recipient inside, and does the selector name it?"""
    submission = world.submissions[part[0]]
    (address, hop) = next((a, h) for number, a, h in submission.recipients if number == part[1])
    patterns = ((selector.sender, submission.sender), (selector.recipient, address))
    return (
        hop.startswith("inside")
        and selector.network_message_id in (None, part[0])
        and (not selector.next_hops or hop in selector.next_hops)
        and all(_fits(pattern, text) for pattern, text in patterns)
    )


def _fits(pattern: str | None, text: str) -> bool:
    if pattern is None:
        return True
    return text.endswith(pattern[1:]) if pattern.startswith("*@") else text == pattern


def kept(world: World, selector: Selector, part: Part) -> list[tuple[Node, Copy]]:
    """The disks that have it in Safety Net, delivered in the window."""
    found = []
    for node in world.nodes.values():
        copy = node.ledger.durable_copy(part[0])
        if copy is not None and copy.stage is Stage.SAFETY_NET and _in_window(selector, copy, part[1]):
            found.append((node, copy))
    return found


def _in_window(selector: Selector, copy: Copy, number: int) -> bool:
    (one,) = (r for r in copy.recipients if r.number == number)
    return one.status is Status.DELIVERED and selector.covers(one.settled_at)


def due(world: World, selector: Selector) -> frozenset[Part]:
    """What a request that is made now has to bring back. What is settled, and not told yet because a journal
    copy is not safe, may still be in its owner's queue.
    """
    parts = [
        (message_id, number)
        for message_id, sent in world.submissions.items()
        for number, _, _ in sent.recipients
    ]

    def told(part: Part) -> bool:
        copies = [copy for _, copy in kept(world, selector, part)]
        return any(not any(one.waits for one in copy.recipients) for copy in copies)

    return frozenset(part for part in parts if meant(world, selector, part) and told(part))


# At each commit.


def committed(
    checks: Invariants, node: Node, touched: dict[MessageId, Copy | None], told: tuple[Any, ...]
) -> None:
    """After a commit of that node."""
    state = node.ledger.state
    for event in told:
        if isinstance(event, Resubmit):
            _made(checks, node, event)
    for message_id, before in touched.items():
        if before is not None and before.stage is Stage.SAFETY_NET and message_id not in state.copies:
            _dropped(checks, node, before)
    if state.requests:
        for request in state.requests.values():
            known = checks.records.get((node.name, request.id))
            if known is None or known[0] != request:
                checks.records[node.name, request.id] = request, checks.world.now


def forget(checks: Invariants, node: Node) -> None:
    """Its disk is another one."""
    for key in [key for key in checks.records if key[0] == node.name]:
        del checks.records[key]
    for request in node.ledger.state.requests.values():
        checks.records[node.name, request.id] = request, checks.world.now


def _made(checks: Invariants, node: Node, event: Resubmit) -> None:
    world, new = checks.world, event.copy
    what = f"{node.name}: {new.id}, made of {event.original},"
    if event.original not in world.submissions:
        raise Broken(f"{what} is made of a message that was itself made")
    submission = world.submissions[event.original]
    sent = {number: (address, hop) for number, address, hop in submission.recipients}
    for one in new.recipients:
        if not one.next_hop.startswith("inside") or sent.get(one.number) != (one.address, one.next_hop):
            raise Broken(f"{what} crosses the boundary: {one.address}")
        if not world.was_delivered(event.original, one.number):
            raise Broken(f"{what} goes to {one.address}, who never had it")
    if new.digests is None or new.digests.content != of_content(world.content_of(event.original)):
        raise Broken(f"{what} has another content")
    if new.envelope.sender != submission.sender:
        raise Broken(f"{what} has another sender")
    if any(one.suspended for one in new.recipients):
        raise Broken(f"{what} is quarantined again")
    _may_make(checks, node, event, what)
    entries = world.resubmissions.setdefault((event.request, event.original), [])
    if any(entry.id != new.id for entry in entries):
        raise Broken(f"{what} has a second id for one request")
    numbers = frozenset(one.number for one in new.recipients)
    entries.append(Resubmission(new.id, event.original, event.request, node.name, world.now, numbers))
    world.originals[new.id] = event.original


def _may_make(checks: Invariants, node: Node, event: Resubmit, what: str) -> None:
    """Is the request running, as far as this node knows or should, and is the message its own to make?"""
    world = checks.world
    known = checks.records.get((node.name, event.request))
    now = node.ledger.state.requests.get(event.request)
    if now is None and known is None:
        raise Broken(f"{what} belongs to no request")
    states = {record.state for record in (now, known and known[0]) if record}
    if RequestState.RUNNING not in states:
        raise Broken(f"{what} was made though its request is {states}")
    revision = max(record.revision for record in (now, known and known[0]) if record)
    slack = SLACK + (LATE if world.noise.loss or world.noise.late else 0.0)
    for (other, request), (record, since) in checks.records.items():
        if request != event.request or record.state is RequestState.RUNNING or record.revision <= revision:
            continue
        if healthy_for(world, other, node.name, since, world.now) > slack:
            raise Broken(f"{what} was made though {other} had heard that its request is {record.state}")
        if not world.noise.loss and not world.noise.late and _returned(world, node, other, since):
            raise Broken(f"{what} was made by a node that came back and did not ask {other} first")
    if event.owner != node.name and not _lost(world, node, event.owner, now or (known and known[0])):
        raise Broken(f"{what} was not {node.name}'s to make: {event.owner} was there")


def _returned(world: World, node: Node, other: str, since: float) -> bool:
    """Was the process begun after the other node knew, with nothing wrong between the two since then?"""
    for entry in world.impairments:
        if entry.one != node.name or entry.other is not None or entry.kind not in ENDED:
            continue
        if since < entry.end <= world.now:
            stretch = healthy_for(world, node.name, other, entry.end, world.now)
            if stretch >= world.now - entry.end:
                return True
    return False


def _lost(world: World, node: Node, owner: str, request: Request | None) -> bool:
    """By what happened: is that owner's database gone, or is it silent for so long, or said to be gone?"""
    interval = world.policy.unresponsive_primary_interval.total_seconds()
    said = request is not None and owner in request.gone
    if said and owner not in node.boundary.reachable():  # one lost packet may do: an operator says the rest
        return True
    for entry in world.impairments:
        if entry.one == owner and entry.other is None and entry.kind in LOST:
            return True
        between = {entry.one, entry.other} == {owner, node.name} or (entry.one == owner and not entry.other)
        ended_long_ago = entry.end < world.now - SLACK
        if not between or ended_long_ago:
            continue
        if said:
            return True
        if entry.start <= world.now - interval + 1.0:
            return True
    return bool(world.noise.loss or world.noise.late)


def _dropped(checks: Invariants, node: Node, copy: Copy) -> None:
    """A copy in Safety Net is gone: not out of the window of a request that the node has."""
    world = checks.world
    world.expired[node.name, copy.id] = world.now
    for (name, _), (request, _) in checks.records.items():
        if name != node.name or not checks.ages.open(node, request):
            continue
        if any(request.selector.covers(one.settled_at) for one in copy.recipients):
            raise Broken(f"{node.name}: {copy.id} expired inside the window of a request")


# At the end.


def unfinished(world: World) -> str:
    """What the members have still to do about requests; '' when nothing is left."""
    known = {id_ for node in world.nodes.values() for id_ in node.ledger.state.requests}
    for id_ in sorted(known):
        records = {node.name: node.ledger.state.requests.get(id_) for node in world.nodes.values()}
        some = next(record for record in records.values() if record)
        for node in world.nodes.values():
            if not some.open(node.time.endings(), world.policy.resubmit_request_age):
                continue
            if records[node.name] != some:
                return f"{node.name} has not heard how request {some.number} is"
            if some.state is RequestState.RUNNING and (whose := _left(node, id_)):
                return f"{node.name} has still to make what {whose} settled"
    return ""


def _left(node: Any, request: RequestId) -> str:
    """An owner whose messages this node has still to look at, as ``resubmission.turn`` has it."""
    state = node.ledger.state
    broken = [name for name, member in state.known.items() if member.broken_at is not None]
    for owner in (node.name, *broken):
        part = state.parts.get((Progress, (request, node.name, owner)))
        if part is None or not part.done:
            return str(owner)
    return ""


def missing(checks: Invariants) -> Iterator[str]:
    """For each recipient that did not get a message back the cause; '!…' if there is none."""
    world = checks.world
    for asked in world.requests.values():
        age = timedelta(seconds=world.now - asked.at)
        if age >= world.policy.resubmit_request_age - timedelta(seconds=SLACK):
            continue
        records = [node.ledger.state.requests.get(asked.id) for node in world.nodes.values()]
        if not any(records):
            if not any(
                e.one == asked.node and e.kind in ENDED and e.end >= asked.at for e in world.impairments
            ):
                yield f"!request {asked.id} is gone"
            continue
        if any(record is None or record.state is not RequestState.RUNNING for record in records):
            continue
        for part in sorted(asked.due):
            made = world.resubmissions.get((asked.id, part[0]), [])
            if any((entry.id, part[1]) in world.deliveries for entry in made):
                continue
            yield _why(world, asked, part, made)


def _why(world: World, asked: Asked, part: Part, made: list[Resubmission]) -> str:
    about = {part[0], *(entry.id for entry in made)}
    if any(message_id in about for _, message_id in world.hit):
        return "damaged"
    if world.faults.get("clock step") or world.faults.get("wall clock"):
        return "a wall clock was wrong"
    keepers = kept(world, asked.selector, part)
    lost = [entry for entry in world.impairments if entry.kind in LOST]
    if not keepers:
        if any(message_id == part[0] for _, message_id in world.expired):
            return "expired where the request was not known"
        if lost:
            return "every copy in Safety Net was lost"
        return f"!{part} is in nobody's Safety Net any more"
    if made and any(entry.start >= made[0].at and entry.one in {m.node for m in made} for entry in lost):
        return "made, and its only copy was lost with the disk"
    owners = {copy.owner for _, copy in keepers}
    if all((owner, part[0]) in world.expired for owner in owners):
        return "expired at its owner before the request came"
    return f"!{part} was not given back: in Safety Net at {', '.join(node.name for node, _ in keepers)}"
