"""Looks up hosts: MX records and addresses at name servers, and names as the system knows them.

The only importer of dnspython. Answers are kept as long as their TTL says; a failure for half a minute. Every
question has a time limit of its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.nameserver
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.TLSA
import dns.resolver
import structlog

from shadowrelay.core.delivery.mx import (
    NO_DOMAIN,
    NO_HOST,
    TROUBLE_COUNTS,
    DnsTrouble,
    DomainRefused,
    MxHost,
    MxRecord,
    exchanges,
    literal,
    some,
    without_us,
)
from shadowrelay.core.delivery.tls_policy import DaneAnswer, Tlsa
from shadowrelay.core.values import dataclass, replace

log = structlog.get_logger(__name__)

MOST_ANSWERS = 10_000  # that are kept; the ones not used for longest go first
MOST_HOSTS_LOOKED_UP = 10  # of one domain, by preference
RESOLV_CONF = Path("/etc/resolv.conf")
_THREADS = 8  # for names that the system looks up
_LONGEST_NAME = 253
_PAYLOAD = 1232  # octets of a datagram
_ANSWERS = frozenset({dns.rcode.NOERROR, dns.rcode.NXDOMAIN})

# A record with a digest of another length is unusable, and those beside it count (RFC 7671 2.1): the library
# refuses the whole answer for it.
dns.rdtypes.ANY.TLSA.TLSA._cert_length_by_mtype = {}


@dataclass(frozen=True, slots=True)
class NameServer:
    """One name server: an IP address and a port."""

    address: str
    port: int


_WITHOUT_EDNS = frozenset({dns.rcode.FORMERR, dns.rcode.NOTIMP, dns.rcode.BADVERS})


class _Server(dns.nameserver.Do53Nameserver):
    """A name server that is asked again without EDNS if it does not know it (RFC 6891 7)."""

    async def async_query(self, request: dns.message.QueryMessage, *given: Any, **named: Any) -> Any:
        response = await super().async_query(request, *given, **named)
        if request.edns < 0 or response.rcode() not in _WITHOUT_EDNS:
            return response
        plain = dns.message.make_query(request.question[0].name, request.question[0].rdtype)
        return await super().async_query(plain, *given, **named)


class Resolver:
    """``servers``: empty for those of the system. ``is_us``: whether mail for that host and port comes
    back here. ``authentic``: name servers are asked whether each answer is (RFC 6840 5.7). ``trusted``: they
    may be believed although they are on other machines, so that nobody between can say it in their place.
    """

    def __init__(
        self,
        servers: Sequence[NameServer] = (),
        timeout: float = 5.0,
        is_us: Callable[[MxHost, int], bool] | None = None,
        *,
        authentic: bool = False,
        trusted: bool = False,
    ) -> None:
        self._servers = tuple(servers)
        self._timeout = timeout
        self._is_us = is_us
        self._asks_authentic = authentic
        self._trusted = trusted
        self._cache = dns.resolver.LRUCache(MOST_ANSWERS)
        self._made: tuple[object, dns.asyncresolver.Resolver] | None = None
        self._troubles: dict[tuple[str, str], tuple[float, str]] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[dns.resolver.Answer]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "lookup")

    def close(self) -> None:
        """Wait for nothing: a lookup of the system may take long. Whoever waits has DnsTrouble."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for task in self._asking.values():
            task.cancel()

    async def hosts_of(self, domain: str, port: int = 25) -> tuple[MxHost, ...]:
        """The hosts of a domain, by preference, each with its addresses.

        A host whose addresses the DNS does not tell now has none. Raises DomainRefused, DnsTrouble.
        """

        def is_us(host: MxHost) -> bool:
            return self._is_us is not None and self._is_us(host, port)

        if (address := literal(domain)) is not None:
            return without_us(domain, (MxHost(0, address, (address,)),), is_us)
        answer = await self._answer(domain, "MX")
        found = [MxRecord(one.preference, _plain(one.exchange)) for one in answer.rrset or ()]
        records = exchanges(domain, found)
        if [record.exchange for record in records] == [domain]:  # its own address is all that counts
            hosts: tuple[MxHost, ...] = (await self._of_host(MxHost(0, domain)),)
            if not hosts[0].addresses:
                raise DomainRefused(NO_HOST.format(domain=domain))
        else:
            hosts = tuple(MxHost(record.preference, record.exchange) for record in records)
            hosts = tuple(await asyncio.gather(*map(self._with_addresses, hosts[:MOST_HOSTS_LOOKED_UP])))
        if not self._authentic(answer):  # whoever wrote it chose the hosts: what they have says nothing
            hosts = tuple(replace(host, bases=(), trouble="") for host in hosts)
        return without_us(domain, hosts, is_us)

    async def addresses(self, host: str, *, mx_port: int | None = None) -> tuple[str, ...]:
        """The addresses to try for a connection to a host; at least one. An address is its own address.

        ``mx_port``: the DNS named this host, for a connection to that port; addresses that lead to ourselves
        are left out, since the DNS may have changed. Else the system looks it up, unless there are
        ``servers`` of our own. Raises DnsTrouble.
        """
        if host.startswith("/"):
            return (host,)
        if _is_address(host):
            found: tuple[str, ...] = (host,)
        elif mx_port is not None or (
            self._servers and host != "localhost"
        ):  # no name server has that name (RFC 6761 6.3)
            try:
                found = await self._addresses(host)
            except DomainRefused as error:  # the domain exists, and its host does not: that may be mended
                raise DnsTrouble(str(error)[10:]) from error
        else:
            found = await self._system(host)
        if not found:
            raise DnsTrouble(f"{host} has no address")
        if mx_port is not None and self._is_us is not None:
            found = tuple(one for one in found if not self._is_us(MxHost(0, host, (one,)), mx_port))
            if not found:
                raise DnsTrouble(f"{host} leads to this server")
        return some(found)

    async def texts(self, name: str) -> tuple[str, ...]:
        """The TXT records of a name, each as one text; none if the name does not exist. Raises DnsTrouble."""
        try:
            answer = await self._answer(name, "TXT")
        except DomainRefused:
            return ()
        return tuple(b"".join(one.strings).decode("utf-8", "replace") for one in answer.rrset or ())

    async def _with_addresses(self, host: MxHost) -> MxHost:
        if _is_address(host.name):  # no name, though the record says so; it may be ours
            return replace(host, addresses=(host.name,))
        try:
            return await self._of_host(host)
        except DomainRefused:
            return host  # the connection will say so
        except DnsTrouble as trouble:
            return replace(host, trouble=str(trouble))

    async def _of_host(self, host: MxHost) -> MxHost:
        """The host with its addresses, and with the names to ask for TLSA records."""
        answers = await self._address_answers(host.name)
        addresses = tuple(one.address for answer in answers for one in answer)
        if not (self._asks_authentic and addresses):
            return replace(host, addresses=addresses)
        leads_to = {_plain(answer.canonical_name) for answer in answers if answer.rrset}
        if all(map(self._authentic, answers)):
            # Where a CNAME leads comes first; the host's own name is asked after it (RFC 7672 2.2.3).
            bases = (*sorted(leads_to - {host.name}), host.name)
        elif leads_to != {host.name} and await self._authentic_alias(host.name):
            bases = (host.name,)  # a signed CNAME into a zone that is not signed (2.2.2)
        else:
            bases = ()
        return replace(host, addresses=addresses, bases=bases)

    async def _authentic_alias(self, host: str) -> bool:
        try:
            return self._authentic(await self._answer(host, "CNAME"))
        except DomainRefused:
            return False

    async def tlsa(self, bases: Sequence[str], port: int) -> DaneAnswer | None:
        """What the first of those names says that has TLSA records; None if none has. Each is asked only if
        the ones before it have none. An answer that is not authentic is none (RFC 7672 2.1.1).
        """
        for base in bases:
            name = f"_{port}._tcp.{base}"
            if len(name) > _LONGEST_NAME:
                continue
            try:
                answer = await self._answer(name, "TLSA")
            except DomainRefused:
                continue
            except DnsTrouble as trouble:
                return DaneAnswer(base, trouble=str(trouble))
            if answer.rrset and self._authentic(answer):
                return DaneAnswer(base, tuple(map(_tlsa, answer.rrset)))
        return None

    async def not_validating(self, zone: str) -> str:
        """Why what the name servers say of a signed zone is not proven; '' if it is. Each of them is asked,
        anew: one that does not validate would answer what another one calls bogus. Raises DnsTrouble: none
        of them gives an answer.
        """
        if not self._trusted and not all(ip_address(one).is_loopback for one in self.asked()):
            return "a name server is not on this machine, and dns.trust_ad is false"
        question = dns.message.make_query(zone, "SOA", use_edns=0, want_dnssec=True, payload=_PAYLOAD)
        question.flags |= dns.flags.AD
        servers = [one for one in self._resolver().nameservers if isinstance(one, _Server)]
        said = await asyncio.gather(*(self._said(one, question) for one in servers))
        answers = [one for one in said if one is not None and one.rcode() in _ANSWERS]
        if not answers:
            raise DnsTrouble(f"SOA of {zone}: no name server gave an answer")
        if any(one.rcode() == dns.rcode.NXDOMAIN for one in answers):
            return f"the name servers know no zone {zone}"
        if not all(one.flags & dns.flags.AD for one in answers):
            return f"the name servers do not validate: {zone} is not authentic"
        return ""

    async def _said(self, server: _Server, question: dns.message.QueryMessage) -> dns.message.Message | None:
        backend = dns.asyncbackend.get_default_backend()
        try:
            said: dns.message.Message = await server.async_query(
                question, self._timeout, None, 0, max_size=False, backend=backend
            )
        except (dns.exception.DNSException, OSError):
            return None
        return said

    def _authentic(self, answer: dns.resolver.Answer) -> bool:
        return self._asks_authentic and bool(answer.response.flags & dns.flags.AD)

    def asked(self) -> tuple[str, ...]:
        """The addresses of the name servers that are asked now. Raises DnsTrouble if there are none."""
        try:
            return tuple(one.address for one in self._resolver().nameservers if isinstance(one, _Server))
        except (OSError, dns.exception.DNSException) as error:
            raise DnsTrouble(_why(error)) from error

    async def _addresses(self, host: str) -> tuple[str, ...]:
        return tuple(one.address for answer in await self._address_answers(host) for one in answer)

    async def _address_answers(self, host: str) -> list[dns.resolver.Answer]:
        """AAAA and A. One of them is enough; with neither, trouble is trouble."""
        found = await asyncio.gather(
            self._answer(host, "AAAA"), self._answer(host, "A"), return_exceptions=True
        )
        answers = [part for part in found if not isinstance(part, BaseException)]
        troubles = [part for part in found if isinstance(part, BaseException)]
        if troubles and not any(answer.rrset for answer in answers):
            raise min(troubles, key=lambda error: isinstance(error, DomainRefused))
        return answers

    async def _answer(self, name: str, kind: str) -> dns.resolver.Answer:
        """The answer to one question, asked once however many wait. Raises DomainRefused, DnsTrouble."""
        key, now = (name, kind), asyncio.get_running_loop().time()
        until, why = self._troubles.get(key, (0.0, ""))
        if now < until:
            raise DnsTrouble(why)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(name, kind))
            task.add_done_callback(lambda ended: self._asked(key, ended))
        with _going_on(f"{kind} of {name}: no answer"):
            try:
                return await asyncio.shield(task)
            except DnsTrouble as trouble:
                self._remember(key, now, str(trouble))
                raise

    def _asked(self, key: tuple[str, str], ended: asyncio.Task[dns.resolver.Answer]) -> None:
        self._asking.pop(key, None)
        if not ended.cancelled():
            ended.exception()  # whoever waits hears of it; perhaps nobody does any more

    def _remember(self, key: tuple[str, str], now: float, why: str) -> None:
        if len(self._troubles) >= MOST_ANSWERS:
            self._troubles = {one: told for one, told in self._troubles.items() if told[0] > now}
        if len(self._troubles) < MOST_ANSWERS:
            self._troubles[key] = (now + TROUBLE_COUNTS.total_seconds(), why)

    async def _ask(self, name: str, kind: str) -> dns.resolver.Answer:
        try:
            resolver = self._resolver()
            return await resolver.resolve(
                dns.name.from_text(name), kind, raise_on_no_answer=False, lifetime=self._timeout, search=False
            )
        except dns.resolver.NXDOMAIN:
            raise DomainRefused(NO_DOMAIN.format(domain=name)) from None
        except (dns.exception.DNSException, OSError, UnicodeError) as error:
            why = _why(error)
            log.warning("dns_trouble", name=name, type=kind, error=str(error))
            raise DnsTrouble(f"{kind} of {name}: {why}") from error

    def _resolver(self) -> dns.asyncresolver.Resolver:
        """The library's resolver. That of the system is made anew when its file has changed."""
        stamp: object = "ours" if self._servers else RESOLV_CONF.stat().st_mtime_ns
        if self._made is None or self._made[0] != stamp:
            self._cache.flush()  # what other name servers called authentic may not be
            found = dns.asyncresolver.Resolver(configure=not self._servers)
            asked = self._servers or [NameServer(str(one), found.port) for one in found.nameservers]
            found.nameservers = [_Server(one.address, one.port) for one in asked]
            found.cache = self._cache
            found.use_edns(0, ednsflags=dns.flags.DO if self._asks_authentic else 0, payload=_PAYLOAD)
            if self._asks_authentic:
                found.set_flags(dns.flags.RD | dns.flags.AD)
            # One try at one server; each has its turn, and there is time for a second round.
            found.timeout = min(2.0, self._timeout / (len(found.nameservers) + 1))
            self._made = (stamp, found)
        return self._made[1]

    async def _system(self, host: str) -> tuple[str, ...]:
        """As the system looks names up; never longer than the time limit, and in threads of our own."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                with _going_on(f"{host}: no answer"):
                    found = await loop.run_in_executor(
                        self._threads, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                    )
        except TimeoutError:
            raise DnsTrouble(f"{host}: no answer in time") from None
        except (OSError, UnicodeError) as error:
            raise DnsTrouble(f"{host}: {getattr(error, 'strerror', None) or error}") from error
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


@contextmanager
def _going_on(why: str) -> Iterator[None]:
    """A lookup that ``close`` ended is trouble for whoever waits for it, and not the end."""
    try:
        yield
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if waiting and waiting.cancelling():
            raise
        raise DnsTrouble(why) from None


def _why(error: Exception) -> str:
    """Bland: what is told to senders names no server of ours."""
    if isinstance(error, dns.resolver.LifetimeTimeout):
        return "no answer in time"
    if isinstance(error, dns.resolver.NoNameservers):
        return "no name server gave an answer"
    return "no name server can be asked" if isinstance(error, OSError) else type(error).__name__


def _tlsa(record: Any) -> Tlsa:
    return Tlsa(record.usage, record.selector, record.mtype, record.cert)


def _plain(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower() if name != dns.name.root else ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_own(address: str, port: int, listening: Iterable[tuple[str, int]]) -> bool:
    """Whether one of those listeners, each a host and a port, is behind that address and port.

    No mail for others goes to a loopback or unspecified address. So each of them is ours if a listener on any
    of them has that port: whether 127.0.0.2, ::1 or 0.0.0.0 reaches it depends on the system. A listener that
    a name stands for may be behind any address of this machine.
    """
    wanted = _unmapped(address)
    hosts = {_unmapped(host) for host, at in listening if at == port}
    if wanted in hosts:
        return True
    if _is_machine(wanted):
        return any(_is_machine(host) for host in hosts)
    return any(
        _is_unspecified(host) or not _is_address(host) for host in hosts - {"localhost"}
    ) and _is_local(wanted)


def _unmapped(host: str) -> str:
    """One spelling of an address: ::ffff:192.0.2.1 is 192.0.2.1 (RFC 4291 2.5.5.2)."""
    try:
        found = ip_address(host)
    except ValueError:
        return host.lower()
    return str(found.ipv4_mapped or found) if isinstance(found, IPv6Address) else str(found)


def _is_machine(host: str) -> bool:
    """Whether that is this machine, wherever one asks."""
    return (
        _is_unspecified(host) or host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)
    )


def _is_unspecified(host: str) -> bool:
    return not host or (_is_address(host) and ip_address(host).is_unspecified)


def _is_local(address: str) -> bool:
    """Whether the address is one of this machine: then packets to it would come from it. None is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0]) == address
    except OSError:
        return False
