"""The stage for shadow queues of hops: it asks silent hops, and sends again what they failed to deliver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

import structlog

from shadowrelay.core.decisions import HopShadow, Part
from shadowrelay.core.delivery.hop_shadows import send_again, to_send_again
from shadowrelay.core.delivery.hosts import Group, Host, HostAddress, HostGroup
from shadowrelay.core.delivery.mx import DnsTrouble, DomainRefused, as_hosts
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Reason
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.routing import Route, next_hop_of
from shadowrelay.core.spelling import canonical
from shadowrelay.core.values import replace
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.hop_talk import HopConversations
from shadowrelay.delivery.hosts import Hosts
from shadowrelay.members.pool import seconds
from shadowrelay.smtp.sending.hop import ConnectionFailed

log = structlog.get_logger(__name__)

INTERVAL = 1.0  # seconds between looks
AGAIN = 60.0  # seconds until the whole shadow queue is looked at again, if nothing has changed
AT_ONCE = 100  # messages in one transaction
FEW = 20  # messages whose next hops tell where a hop may be found
PATIENCE = 60.0  # seconds that a session of its own may take
MOST_TOLD = 3  # addresses that one failed heartbeat names


class HopShadows:
    """Looks after each hop that has something of ours. ``changed`` is called when the queue has news."""

    def __init__(
        self,
        database: TransportDatabase,
        conversations: HopConversations,
        hosts: Hosts,
        examiner: Examiner,
        routes: Sequence[Route],
        ready: Callable[[], bool],
        changed: Callable[[], None],
        policy: Policy,
        clock: Callable[[], datetime],
    ) -> None:
        self.hosts = hosts
        self._database = database
        self._conversations = conversations
        self._examiner = examiner
        self._routes = routes
        self._ready = ready
        self._changed = changed
        self._policy = policy
        self._clock = clock
        self._bad: dict[ServerName, frozenset[HostAddress]] = {}  # where a hop did not answer when last asked
        self._taking: set[HostAddress] = set()  # those of ``_bad`` that took mail since
        self._past: dict[MessageId, ServerName] = {}  # which hop a message goes past
        self._looked: dict[ServerName, tuple[object, float]] = {}  # on what the last look rested, and when

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            hops = list(self._database.ledger.hop_shadow_rows.counts)
            await asyncio.gather(*(self._look_after(hop) for hop in hops))
            await asyncio.sleep(INTERVAL)

    def avoided(self, message_id: MessageId) -> Mapping[HostAddress, bool]:
        """The hosts that a message goes past, because a hop that is given up was found there; and whether one
        has taken mail since. Such a host gets the message if no other takes it.
        """
        hop = self._past.get(message_id)
        if hop is None or not self._conversations.watch(hop).gone(self._policy):
            return {}
        return {address: address in self._taking for address in self._bad.get(hop, ())}

    def took(self, address: HostAddress) -> None:
        """A host answered for a message."""
        if self._bad and any(address in bad for bad in self._bad.values()):
            self._taking.add(address)

    async def _look_after(self, hop: ServerName) -> None:
        watch = self._conversations.watch(hop)
        if watch.due(seconds(), self._policy):
            await self.heartbeat(hop)
        if self._ready():
            await self.send_again(hop)

    # Heartbeat

    async def heartbeat(self, hop: ServerName) -> None:
        """Ask the hop in a session of its own, wherever its mail may have gone."""
        began, bad = seconds(), set()
        there: list[str] = []
        elsewhere: list[str] = []
        met_at, before = self._conversations.met_at.get(hop, ()), self._conversations.watch(hop)
        for host, group in await self._places(hop):
            failure, is_another = await self._talk(hop, host, group)
            if not failure:
                self._bad.pop(hop, None)
                self._past = {one: past for one, past in self._past.items() if past != hop}
                return
            place = (host.name, host.port)
            if not is_another or place in met_at:
                bad.add(place)
            own = place in met_at if met_at else not is_another
            (there if own else elsewhere).append(failure)
        # What is said is of the hop's own address, as far as that is known: another server has not failed.
        error = "; ".join((there or elsewhere)[:MOST_TOLD]) or "its mail has no way to it in the settings"
        self._bad[hop] = frozenset(bad)
        self._taking &= {address for known in self._bad.values() for address in known}
        watch = before.failed(began, error)  # a greeting alone is no answer to the question
        self._conversations.watches[hop] = watch
        log.warning(
            "hop_heartbeat_failed",
            hop=hop,
            error=error,
            failures=watch.failures,
            given_up=watch.gone(self._policy),
        )

    async def _places(self, hop: ServerName) -> list[tuple[Host, Group]]:
        """Hosts that may be this hop: those of next hops of its messages that are to show its certificate."""
        next_hops = await self._database.transact(partial(_next_hops, hop, Part(most=FEW)))
        found: dict[HostAddress, tuple[Host, Group]] = {}
        for next_hop in sorted({now for one in next_hops if (now := self._goes_now(*one))}):
            for host, group in await self._hosts_of(next_hop):
                pinned = self.hosts.server(host).pinned
                if pinned and hop in pinned.names:
                    found.setdefault((host.name, host.port), (host, group))
        return list(found.values())

    def _goes_now(self, next_hop: NextHop, domain: str) -> NextHop | None:
        """The next hop of a recipient by the settings of now. Its own may have been renamed since: then it is
        routed by its domain, as the queue does. None: there is no route for it.
        """
        if self.hosts.ways(next_hop):
            return next_hop
        return next_hop_of(f"anyone@{domain}", self._routes)

    async def _hosts_of(self, next_hop: NextHop) -> list[tuple[Host, Group]]:
        found: list[tuple[Host, Group]] = []
        for group in self.hosts.ways(next_hop):
            members = group.hosts if isinstance(group, HostGroup) else ()
            if not isinstance(group, HostGroup):
                try:
                    members = as_hosts(group, await self.hosts.resolver.hosts_of(group.domain, group.port))
                except (DnsTrouble, DomainRefused):
                    members = ()
            found += [(host, group) for host in members]
        return found

    async def _talk(self, hop: ServerName, host: Host, group: Group) -> tuple[str, bool]:
        """How the heartbeat failed at that host, '' if the hop answered; and whether it is another server,
        which did not show the hop's certificate.
        """
        session = self.hosts.session(replace(self.hosts.server(host), login=None), group)
        try:
            async with asyncio.timeout(PATIENCE):
                await session.connect()
                if session.hop is None or session.hop.name != hop:
                    return f"{host} does not track messages as {hop}", session.shown != hop
                await self._conversations.ask(session)
        except ConnectionFailed as failed:
            return f"{host}: {failed.step}: {failed.reply or failed.error}", False
        except TimeoutError:
            return f"{host}: no answer in time", False
        finally:
            await session.close()
        return "", False

    # Another way

    async def send_again(self, hop: ServerName) -> int:
        """Make new messages of what the hop has lost, or of what can go another way while it is given up.
        Returns how many. The shadow queue may be long, so it is gone through only when there may be news.
        """
        gone = self._conversations.watch(hop).gone(self._policy)
        failed = Reason.HEARTBEAT_LOST if gone else None
        peer = await self._database.transact_briefly(lambda ledger: ledger.hop_peer(hop))
        known = peer.lineage if peer else None
        bad = self._bad.get(hop)
        if not self._is_news(hop, (known and (known.database_id, known.incarnation), failed, bad)):
            return 0
        part: Part | None = Part(most=AT_ONCE)
        ways: dict[tuple[NextHop, NextHop | None], bool] = {}  # by the next hop of then and that of now
        made: list[MessageId] = []
        while part is not None:
            for next_hop, domain in (
                await self._database.transact(partial(_next_hops, hop, part)) if failed else ()
            ):
                way = next_hop, self._goes_now(next_hop, domain)
                if way not in ways:
                    ways[way] = way[1] is not None and await self._has_another(way[1], bad or ())
            shut = {then for (then, _), another in ways.items() if not another}
            open_ = [then for then in dict.fromkeys(then for then, _ in ways) if then not in shut]
            rows, part = await self._database.transact(partial(_wanted, hop, part, failed, open_))
            unsound = [row.message_id for row in rows if not await self._is_sound(row.message_id)]
            if rows:
                now = self._clock()
                again = partial(send_again, rows=rows, failed=failed, ways=open_, unsound=unsound, now=now)
                made += await self._database.transact(again)
        if made:
            log.warning("hop_messages_sent_again", hop=hop, messages=len(made), silent=gone)
            if failed:
                self._past.update(dict.fromkeys(made, hop))
            self._changed()
        return len(made)

    def _is_news(self, hop: ServerName, rests_on: object) -> bool:
        before, at = self._looked.get(hop, (None, 0.0))
        if rests_on == before and seconds() - at < AGAIN:
            return False
        self._looked[hop] = rests_on, seconds()
        return True

    async def _has_another(self, next_hop: NextHop, bad: Collection[HostAddress]) -> bool:
        """Does the next hop have a host that has not failed, beside those?"""
        now = self._clock()
        hosts = [host for host, _ in await self._hosts_of(next_hop) if (host.name, host.port) not in bad]
        return any(not self.hosts.standing(host).resting(now) for host in hosts)

    async def _is_sound(self, message_id: MessageId) -> bool:
        """Verify, then send: does the content match its digest?"""
        return await self._examiner.look(message_id) is Finding.SOUND


def _next_hops(hop: ServerName, part: Part, ledger: SqlLedger) -> set[tuple[NextHop, str]]:
    """The next hops by which messages went to that hop, each with domains of their recipients."""
    rows, _ = ledger.hop_shadows(hop, part)
    return {
        (one.next_hop, canonical(one.address.rpartition("@")[2]))
        for row in rows
        if (copy := ledger.copy(row.message_id))
        for one in copy.recipients
        if one.number in row.recipients
    }


def _wanted(
    hop: ServerName, part: Part, failed: Reason | None, ways: Collection[NextHop], ledger: SqlLedger
) -> tuple[list[HopShadow], Part | None]:
    rows, rest = ledger.hop_shadows(hop, part)
    return [row for row in rows if to_send_again(ledger, row, failed, ways)], rest
