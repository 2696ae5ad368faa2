"""Senders: they submit a message, and retry it under a new id of ours until somebody takes responsibility."""

from __future__ import annotations

from dataclasses import dataclass

from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Digests, Envelope, Recipient
from shadowrelay.core.pressure import Inflow
from shadowrelay.core.reception.redundancy import Arrival

from .checks import Invariants
from .filters import Filtered, as_sent
from .world import Submission, World

PATIENCE = 9.0
"""Seconds that a client waits for the answer to its final dot (RFC 5321: ten minutes; scaled)."""


@dataclass(slots=True)
class Client:
    """One message of one sender. ``homes``: the nodes it tries, in turn."""

    world: World
    checks: Invariants
    number: int
    sender: str
    recipients: tuple[tuple[int, str, str], ...]  # number, address, next hop
    homes: tuple[ServerName, ...]
    tries: int = 6
    fixed_id: MessageId | None = None
    becomes: Filtered = Filtered.CHANGED  # at the filters of the node that takes the message
    inflow: Inflow = Inflow.TRUSTED
    turn: int = 0
    finished: bool = False
    waiting: bool = False

    def submit(self) -> None:
        """Connect, and send all of it; when nobody answers the connection, try the next node."""
        world = self.world
        if self.tries <= 0:
            self.finished = True
            return
        self.tries -= 1
        home = self.homes[self.turn % len(self.homes)]
        self.turn += 1
        node = world.nodes[home]
        message_id = self.fixed_id or MessageId(world.uuid())
        self.fixed_id = None
        world.submissions[message_id] = Submission(
            message_id, self.number, home, self.recipients, self.sender, world.now
        )
        world.say("client", f"sends message {self.number} to {home} as {message_id}")
        open_ = [True]

        def close() -> bool:
            was = bool(open_)
            open_.clear()
            return was

        def answered(answer: str) -> None:
            if not close():
                return
            world.say("client", f"is answered {answer} for {message_id}")
            if answer == "250":
                self.checks.acknowledged(message_id)
                self.finished = True
                world.point("answered", message_id, answer)
            else:
                world.point("answered", message_id, answer)
                if answer == "550":
                    self.finished = True
                    return
                if self.becomes is Filtered.PUT_OFF:  # once
                    self.becomes = Filtered.CHANGED
                world.after(0.5 + world.random.random(), self.submit)

        def silence() -> None:
            if close():
                world.say("client", f"has no answer for {message_id}")
                self.submit()

        def reply(answer: str) -> None:
            world.carry(home, "client", lambda: answered(answer), quiet=True)

        def arrive() -> None:
            if not node.up or node.opening:
                world.after(0.3, silence)
                return
            node.attend(node.mail, self.inflow, taken, refused)

        def taken() -> None:
            node.receive(self._arrival(message_id, node.clock()), reply, self.becomes)

        def refused(answer: str) -> None:
            world.refused.add(message_id)
            world.unkept.add(message_id)
            reply(answer)

        if not world.carry("client", home, arrive, quiet=True):
            world.after(1.0, silence)
        world.after(PATIENCE, silence)

    def _arrival(self, message_id: MessageId, now: object) -> Arrival:
        recipients = tuple(
            Recipient(number, address, NextHop(hop), notify=("FAILURE",) if number % 2 else ())
            for number, address, hop in self.recipients
        )
        tls = self.world.submissions[message_id].tls
        envelope = Envelope(sender=self.sender, size=len(message_id), envid=f"E{self.number}", tls=tls)
        digests = Digests(of_content(message_id.encode()), of_envelope(envelope, recipients))
        arrival = Arrival(
            id=message_id,
            envelope=envelope,
            recipients=recipients,
            digests=digests,
            received_at=now,  # type: ignore[arg-type]
        )
        return as_sent(arrival)
