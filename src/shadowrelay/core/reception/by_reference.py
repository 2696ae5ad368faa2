"""A copy whose content is not sent, because the member has it: it is the content of another message.

Only members that have that message for one another refer to its content, and only with its size and digest.
So no member gets mail that it did not have by guessing ids (docs/decisions/0033-safety-net-gives-back.md).
"""

from __future__ import annotations

from shadowrelay.core.identifiers import Digest, MessageId, RequestId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Copy, HolderState, Stage
from shadowrelay.core.values import dataclass

_HAVE_IT = frozenset({HolderState.HOLDING, HolderState.BESIDE, HolderState.LOST})


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What a message is made of. ``octets``: the content is not sent; it is that of ``message_id``, and has
    that many octets.
    """

    message_id: MessageId
    request: RequestId | None = None
    octets: int | None = None


def keepers(ledger: Ledger, copy: Copy) -> frozenset[ServerName]:
    """The members that have the message whose content ``copy`` has, as far as our own copy of it tells."""
    original = ledger.copy(copy.content_of) if copy.content_of else None
    if original is None:
        return frozenset()
    held = {holder.name for holder in original.holders if holder.state in _HAVE_IT}
    return frozenset({original.owner, *held} - {ledger.name})


def may_refer(
    ledger: Ledger, asker: ServerName, original_id: MessageId, octets: int, digest: Digest | None
) -> bool:
    """May ``asker`` refer to the content of a message here, instead of sending it?

    Only the owner of that message, or one that holds it for us; and only if it names size and digest.
    """
    original = ledger.copy(original_id)
    if original is None or original.damaged or original.stage not in {Stage.QUEUED, Stage.SAFETY_NET}:
        return False
    known = original.digests.content if original.digests else None
    if known is None or known != digest or original.envelope.size != octets:
        return False
    return asker in {original.owner, *(holder.name for holder in original.holders)}
