"""TLS with a next hop: what it must show, and what we show."""

from __future__ import annotations

import ssl

from shadowrelay.core.identifiers import ServerName
from shadowrelay.smtp.sending.hop import ConnectionFailed, NextHopServer, Pinned


def context_for(server: NextHopServer) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca_file)
    if server.pinned and server.pinned.certificate:
        context.load_cert_chain(server.pinned.certificate, server.pinned.key)
    if server.tls == "opportunistic" or server.shows_pinned:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = server.check_hostname
    return context


def pinned_hop(pinned: Pinned, shown: ssl.SSLObject) -> ServerName:
    certificate = shown.getpeercert(binary_form=True)
    if certificate is None or certificate not in pinned.peers:
        names = ", ".join(sorted(pinned.peers.values()))
        raise ConnectionFailed("tls", f"the certificate is not the pinned one of {names}")
    return pinned.peers[certificate]
