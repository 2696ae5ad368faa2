"""A real name server on loopback, over UDP and TCP, that says what a test tells it to."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from typing import Any, cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

SILENT = "silent"
SERVFAIL = "SERVFAIL"
REFUSED = "REFUSED"

TTL = 300


class LoopbackDns:
    """``zone`` maps a name and a type to records in text, or to an rcode, or to SILENT. A name that has no
    record of any type does not exist. CNAMEs are followed, as a recursive server does.
    """

    def __init__(self, zone: dict[tuple[str, str], Any], *, ttl: int = TTL) -> None:
        self.zone = zone
        self.ttl = ttl
        self.signed: tuple[str, ...] = ()  # domains whose answers are authentic; "" is the root
        self.truncated: set[str] = set()  # names whose answers do not fit into a datagram
        self.without_edns: tuple[str, bool] | None = (
            None  # to EDNS: an rcode, and whether the question follows
        )
        self.asked: Counter[tuple[str, str, str]] = Counter()  # by transport, name and type

    async def __aenter__(self) -> LoopbackDns:
        loop = asyncio.get_running_loop()
        self._server, self._tcp = await _same_port(self._accept)
        self.port: int = self._tcp.getsockname()[1]
        self._udp, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), sock=self._tcp_twin())
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    def _tcp_twin(self) -> socket.socket:
        twin = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        twin.setblocking(False)
        twin.bind(("127.0.0.1", self.port))
        return twin

    async def __aexit__(self, *_: object) -> None:
        self._udp.close()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def setting(self) -> dict[str, Any]:
        """The table ``dns`` of the settings of a node that asks this server."""
        return {"servers": [f"127.0.0.1:{self.port}"], "timeout": "1s"}

    def count(self, name: str, kind: str) -> int:
        """How often that question was asked, over UDP and TCP."""
        return sum(count for (_, one, of), count in self.asked.items() if (one, of) == (name, kind))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            answer = self.answer(await reader.readexactly(length), "tcp")
            if answer is not None:
                writer.write(struct.pack("!H", len(answer)) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, wire: bytes, transport: str) -> bytes | None:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        kind = dns.rdatatype.to_text(question.rdtype)
        name = question.name.to_text().removesuffix(".").lower()  # the root is ""
        self.asked[transport, name, kind] += 1
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if self.without_edns and query.edns >= 0:
            response.use_edns(False)
            response.set_rcode(dns.rcode.from_text(self.without_edns[0]))
            if not self.without_edns[1]:
                response.question.clear()
            return response.to_wire()
        if transport == "udp" and name in self.truncated:
            response.flags |= dns.flags.TC
            return response.to_wire()
        asks = bool(query.flags & dns.flags.AD) and bool(query.ednsflags & dns.flags.DO)
        authentic = asks
        for _ in range(8):
            authentic &= any(f".{name}".endswith(f".{domain}") for domain in self.signed)
            found = self.zone.get((name, kind), [])
            if found == SILENT:
                return None
            if isinstance(found, str):
                response.set_rcode(dns.rcode.from_text(found))
                break
            if found:
                response.answer.append(dns.rrset.from_text_list(f"{name}.", self.ttl, "IN", kind, found))
                break
            alias = self.zone.get((name, "CNAME"))
            if alias is None:
                if not any(known == name for known, _ in self.zone):
                    response.set_rcode(dns.rcode.NXDOMAIN)
                break
            response.answer.append(dns.rrset.from_text_list(f"{name}.", self.ttl, "IN", "CNAME", alias))
            name = alias[0].removesuffix(".")
        if authentic and response.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            response.flags |= dns.flags.AD
        return response.to_wire()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: LoopbackDns) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, address: Any) -> None:
        answer = self._server.answer(data, "udp")
        if answer is not None:
            self._transport.sendto(answer, address)


async def _same_port(accept: Any) -> tuple[asyncio.Server, Any]:
    """A TCP listener on a port that is free for UDP too."""
    for _ in range(20):
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        bound = server.sockets[0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(bound.getsockname())
            except OSError:
                server.close()
                continue
        return server, bound
    raise OSError("no port is free for both")
