"""Settings of the whole boundary that operators switch on a running cluster.

A switch is a record that every member has, as a resubmit request is: of two records the one with the higher
revision counts. Each node keeps with it what its own settings file said when it learnt that revision. As long
as the file says the same, the switch counts; a file that says something else since then counts again.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision, Verdict, VerdictKind, Write
from shadowrelay.core.events.discard_notices import addressed
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Confirmation, HolderState
from shadowrelay.core.ownership.transfer import saved
from shadowrelay.core.records import next_revision
from shadowrelay.core.replicating import Rules
from shadowrelay.core.switches import Switch
from shadowrelay.core.values import replace

REDUNDANCY = "shadow_redundancy_enabled"


def in_force(switch: Switch | None, *, file: bool) -> bool:
    """The value in force on a node whose settings file says ``file``."""
    return switch.value if switch and switch.against == file else file


def flipped(ledger: Ledger, given: Switch) -> Decision[Switch]:
    """An operator switches: the change counts over all that this node knows of."""
    known = ledger.switch(given.name)
    revision = next_revision(known.revision if known else 0, given.changed_at)
    after = replace(given, revision=revision, kept_at=known.kept_at if known else given.changed_at)
    return Decision(after, (after,))


RULES = Rules(
    kind=Switch,
    fault=lambda switch: "" if switch.name == REDUNDANCY else f"this node cannot switch {switch.name[:40]}",
    # A revision that is new to this node counts here, whatever this node's file says now.
    learnt=lambda switch, about: replace(switch, against=about.policy.shadow_redundancy_enabled),
    live=lambda *_: True,
)


def released(ledger: Ledger, message_id: MessageId, now: datetime) -> Decision[bool]:
    """Redundancy is off: holders of a message that we own are told so, and no longer count.

    They discard their copies when they hear it from us, on an unbroken lineage: that is our word that we own
    the message. If we are away, they keep their copies, and promote them as ever. Nothing changes if our copy
    is damaged, or the message may not be ours.
    """
    copy = ledger.copy(message_id)
    if copy is None or not copy.owned or copy.damage or copy.confirmation is not Confirmation.NONE:
        return Decision(False)
    told: list[Write] = []
    after = copy
    for holder in copy.holders:
        if holder.state is not HolderState.SUPERSEDED:
            gone = (Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(holder.rank)),)
            told += addressed([holder.database_id], gone, now)
            after = after.with_holder(replace(holder, state=HolderState.SUPERSEDED))
    if not told:
        return Decision(False)
    return Decision(True, (*saved(copy, after).writes, *told))
