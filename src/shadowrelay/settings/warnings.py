"""Warns of settings that are allowed but hardly meant."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address
from pathlib import Path

from shadowrelay.core.delivery.hosts import Host
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import ShadowMessagePreference
from shadowrelay.core.reception.routing import postmaster_domain, route_for
from shadowrelay.core.reception.users import parse_users
from shadowrelay.core.workers import node_of
from shadowrelay.settings.routing import promotion, route_hosts, routes
from shadowrelay.settings.schema import MemberSettings, ReceiveConnector, Settings
from shadowrelay.settings.values import format_duration

_ANY_USER = "any user of this machine may use it; chmod 600, or 640 for the node's group"


def settings_warnings(settings: Settings) -> list[str]:
    """The warnings, one sentence each."""
    found, policy, own = [], settings.policy(), node_of(ServerName(settings.name))
    if policy.shadow_redundancy_enabled and not _eligible(settings):
        answer = (
            "answered 451 4.4.0" if policy.reject_message_on_shadow_failure else "accepted without a shadow"
        )
        found.append(f"no member can hold a shadow for this node: every message will be {answer}")
    users = any(receive.users_file for receive in settings.receive.values())
    if not (settings.accepted_domains or settings.relay_networks or users):
        found.append(
            "nothing is accepted: set accepted_domains, relay_networks, or a Receive connector's users_file"
        )
    if any(network.prefixlen == 0 for network in _merged(settings.relay_networks)):
        found.append("relay_networks contains every address: this is an open relay")
    for name, receive in settings.receive.items():
        found += _who_is_believed(f"receive.{name}", receive)
        found += _not_tracked(f"receive.{name}", receive, settings)
    if settings.peer and not settings.peer.tls:
        found.append("members are trusted by their address (peer.externally_secured), without TLS")
    admin = settings.admin
    if admin.token is None and not admin.tokens and not _loopback(admin.listen.host):
        found.append(f"admin.listen is {admin.listen} and no admin.token is set: anyone may use it")
    for index, token in enumerate(admin.tokens):
        if mode := _open_to_all(token.file):
            found.append(f"admin.tokens[{index}].file, {token.file}, has mode {mode:04o}: {_ANY_USER}")
    if not policy.shadow_redundancy_enabled and settings.members:
        found.append(
            "shadow_redundancy_enabled is false: no message has a second copy, although there are members"
        )
    if policy.reject_message_on_shadow_failure and not policy.shadow_redundancy_enabled:
        found.append("reject_message_on_shadow_failure has no effect: shadow_redundancy_enabled is false")
    span, heartbeat = policy.shadow_resubmit_time_span, policy.shadow_heartbeat_frequency
    if policy.shadow_redundancy_enabled and span <= heartbeat:
        found.append(
            f"shadow_resubmit_time_span is {format_duration(span)}, shadow_heartbeat_frequency "
            f"{format_duration(heartbeat)}: copies are promoted though nobody asked their owner in between"
        )
    if policy.shadow_redundancy_promotion_enabled and not promotion(settings)(()):
        found.append(
            "shadow_redundancy_promotion_enabled has no effect: no route has send_xshadow, "
            "so no server takes a message in place of a slow one"
        )
    for name, connector in _coming_back(settings):
        found.append(
            f"routes.{name} leads to receive.{connector} of this node: its mail comes back until it bounces"
        )
    for name, route in settings.routes.items():
        if route.password_file is not None and (mode := _open_to_all(route.password_file)):
            found.append(
                f"routes.{name}.password_file, {route.password_file}, has mode {mode:04o}: {_ANY_USER}"
            )
    for domain in settings.accepted_domains:
        if not route_for("anyone@" + domain.replace("*", "any"), routes(settings)):
            found.append(
                f"accepted_domains has {domain}, which no route covers: its mail is answered 451 4.4.4"
            )
    postmaster = f"postmaster@{postmaster_domain(own, settings.accepted_domains)}"
    if not route_for(postmaster, routes(settings)):
        found.append(
            f"mail to postmaster, without a domain, is for {postmaster}, which no route covers: it is "
            "answered 451 4.4.4, though every server has to accept it (RFC 5321 section 4.5.1)"
        )
    if settings.peer and settings.peer.certificate and not _names(settings.peer.certificate, own):
        found.append(f"peer.certificate is not for {own}: other members will not believe this node")
    return found


def _who_is_believed(key: str, connector: ReceiveConnector) -> Iterator[str]:
    for believed in ("proxy_networks", "xclient_networks"):
        if any(network.prefixlen == 0 for network in _merged(getattr(connector, believed))):
            yield f"{key}.{believed} contains every address: any client may claim to be another"
    if (file := connector.users_file) is None:
        return
    try:
        if mode := _open_to_all(file):
            yield f"{key}.users_file, {file}, has mode {mode:04o}: {_ANY_USER}"
        if not parse_users(file.read_text("utf-8")):
            yield f"{key}.users_file has no user: AUTH is not offered"
    except (OSError, ValueError):  # an error of that setting
        return


def _not_tracked(key: str, connector: ReceiveConnector, settings: Settings) -> Iterator[str]:
    if not connector.accept_xshadow:
        return
    if any(member.name != settings.name for member in settings.members):
        yield (
            f"{key}.accept_xshadow has no effect: this node has members, so it makes a second copy of each "
            "message itself, and its peers need not keep theirs"
        )
    elif not settings.policy().shadow_redundancy_enabled:
        yield f"{key}.accept_xshadow has no effect: shadow_redundancy_enabled is false"


def _merged(networks: Sequence[IPv4Network | IPv6Network]) -> Iterator[IPv4Network | IPv6Network]:
    """The networks merged: two halves become the whole."""
    yield from collapse_addresses(network for network in networks if isinstance(network, IPv4Network))
    yield from collapse_addresses(network for network in networks if isinstance(network, IPv6Network))


def _coming_back(settings: Settings) -> Iterator[tuple[str, str]]:
    """Routes that lead to a Receive connector of this node, each with that connector."""
    for name, route in route_hosts(settings).items():
        for connector, receive in settings.receive.items():
            if any(_is_here(one, receive, node_of(ServerName(settings.name))) for one in route.hosts):
                yield name, connector


def _is_here(host: Host, receive: ReceiveConnector, own: str) -> bool:
    listening = receive.listen.host
    everywhere = listening in {"", "0.0.0.0", "::"} and _loopback(host.name)  # noqa: S104
    here = everywhere or host.name.lower() in {listening.lower(), own.lower()}
    return here and host.port == receive.listen.port


def _open_to_all(file: Path) -> int:
    """The mode of a file, if any user may read or write it; else 0."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return 0
    return mode if mode & stat.S_IRWXO else 0


def _names(certificate: Path, name: str) -> bool:
    """Whether the certificate has that server's name."""
    from cryptography import x509  # here, because the import is slow

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return name.lower() in (entry.lower() for entry in names.get_values_for_type(x509.DNSName))


def _eligible(settings: Settings) -> list[MemberSettings]:
    preference = settings.policy().shadow_message_preference_setting
    return [
        member
        for member in settings.members
        if member.name != settings.name
        and member.host != settings.host
        and not (preference is ShadowMessagePreference.LOCAL_ONLY and member.site != settings.site)
        and not (preference is ShadowMessagePreference.REMOTE_ONLY and member.site == settings.site)
    ]


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
