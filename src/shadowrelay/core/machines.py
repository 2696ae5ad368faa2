"""What stands on one machine fails together: a copy beside its owner is a copy, and no second one."""

from __future__ import annotations

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import HolderState


def machines(ledger: Ledger, name: ServerName) -> tuple[str, str]:
    """Our own machine, and that member's: '' where it is not known."""
    return ledger.hosts.get(ledger.name, ""), ledger.hosts.get(name, "")


def holding(ledger: Ledger, name: ServerName) -> HolderState:
    """How a copy that this member holds counts: not as a second one if it stands on our own machine."""
    own, other = machines(ledger, name)
    return HolderState.BESIDE if own and own == other else HolderState.HOLDING
