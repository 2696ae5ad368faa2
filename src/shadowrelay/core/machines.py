"""Machines: members on one machine fail together, so a copy on its owner's machine is no second copy."""

from __future__ import annotations

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import HolderState


def machines(ledger: Ledger, name: ServerName) -> tuple[str, str]:
    """Our own machine, and that member's; '' for one that is not known."""
    return ledger.hosts.get(ledger.name, ""), ledger.hosts.get(name, "")


def holding(ledger: Ledger, name: ServerName) -> HolderState:
    """The state of a holder that has a copy: BESIDE if it is on our own machine, else HOLDING."""
    own, other = machines(ledger, name)
    return HolderState.BESIDE if own and own == other else HolderState.HOLDING
