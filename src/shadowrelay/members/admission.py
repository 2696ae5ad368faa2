"""Who may speak as a member: by the certificate, or from a network whose clients are believed without one."""

from __future__ import annotations

import structlog

from shadowrelay.core.decisions import Member
from shadowrelay.core.members.conversation import Greeting
from shadowrelay.core.ownership.heartbeat import Watch
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.members.boundary import Boundary
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.networks import Networks, within
from shadowrelay.wire.replies import Refused

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Admission:
    """One node's. ``externally_secured``: networks whose clients are believed without a certificate."""

    database: TransportDatabase
    boundary: Boundary
    externally_secured: Networks

    def admits(self, client: Client) -> bool:
        """Whether the verbs of members are offered to a client."""
        return client.certificate is not None or self._secured(client)

    def _secured(self, client: Client) -> bool:
        return within(client.address, self.externally_secured)

    async def member(self, client: Client, theirs: Greeting) -> tuple[Watch, Member | None]:
        """The member that the client is, and what is durable of it; None if it was never met. Its certificate
        has to name its node. Raises Refused.
        """
        names = {
            value.lower()
            for kind, value in (client.certificate or {}).get("subjectAltName", ())
            if kind == "DNS"
        }
        is_member = theirs.name in self.boundary.watches
        if not is_member or (node_of(theirs.name) not in names and not self._secured(client)):
            log.warning(
                "stranger_refused", client=client.address, said=theirs.name, certificate=sorted(names)
            )
            raise Refused(550, "5.7.1", "Not a member")
        known = await self.database.transact(lambda ledger: ledger.member(theirs.name))
        if known is not None and known.retired:
            raise Refused(550, "5.7.1", "Not a member")
        if known is not None and known.replaced == theirs.lineage.incarnation:
            # A greeting read late; or the old process still runs, beside another node of that name.
            log.warning("replaced_member_refused", member=theirs.name, incarnation=known.replaced)
            raise Refused(451, "4.3.0", "Another database took the place of yours")
        watch = self.boundary.watches.get(theirs.name)
        if watch is None:  # it left the boundary in this moment
            raise Refused(550, "5.7.1", "Not a member")
        return watch, known
