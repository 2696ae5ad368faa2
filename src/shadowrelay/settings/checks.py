"""Checks settings against each other: values that do not go together, and files that are not there."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from shadowrelay.admin.access import read_secret
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import ShadowMessagePreference
from shadowrelay.core.reception.routing import route_for
from shadowrelay.core.reception.users import UsersInvalid, parse_users
from shadowrelay.core.spelling import canonical
from shadowrelay.core.workers import node_of, worker_name
from shadowrelay.reception.recipient_files import BookLimits, RecipientsInvalid, read_recipients
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.origins import Origin, origin_of
from shadowrelay.settings.pinned import pinned_certificate
from shadowrelay.settings.routing import book_limits, routes
from shadowrelay.settings.schema import (
    HopSettings,
    MemberConnector,
    NextHopProtocol,
    PinnedPeer,
    ReceiveConnector,
    RouteSettings,
    Settings,
    Tls,
)
from shadowrelay.settings.shaping import ShapingSettings
from shadowrelay.settings.shaping_patterns import PatternsInvalid, patterns
from shadowrelay.settings.sites import site_checks
from shadowrelay.settings.values import HostPort, format_duration
from shadowrelay.settings.workers import called_at
from shadowrelay.smtp.sending.hop import NoPassword, read_password

_KEY = "a file in PEM, without a passphrase"
_BOOK = ("recipient_delimiter", "max_list_depth", "max_list_members")


def cross_checks(
    settings: Settings, *, broken: frozenset[str], origins: Mapping[str, Origin], of_worker: bool = False
) -> Iterator[SettingError]:
    """Errors between settings. ``broken``: top-level keys with errors of their own, so not complete.
    ``of_worker``: these are settings with which a worker runs, made of those of its node.
    """

    def refuse(key: str, message: str, *, value: object = "", allowed: str = "") -> SettingError:
        origin = origin_of(key, origins)
        shown = f'"{value}"' if value else ""
        return SettingError(key=key, message=message, value=shown, source=str(origin or ""), allowed=allowed)

    if not settings.receive and "receive" not in broken:
        yield refuse("receive", "has to be set", allowed="at least one table [receive.NAME] with listen")
    for name, connector in settings.receive.items():
        yield from _receive(f"receive.{name}", connector, refuse)
    yield from _peer(settings, broken, refuse)
    yield from _members(settings, broken, refuse)
    yield from _listeners(settings, refuse)
    if not of_worker:
        yield from worker_checks(settings, broken, refuse)
    yield from _routes(settings, refuse)
    for name, route in settings.routes.items():
        if route.machine and not route.inside:
            yield refuse(
                f"routes.{name}.machine",
                "is for next hops inside the boundary",
                value=route.machine,
                allowed="inside = true, or no machine",
            )
    if not broken & {"routes", "site", "sites", "site_links"}:
        yield from site_checks(settings, refuse)
    if not broken & {"routes", "journal"}:
        yield from _journals(settings, refuse)
    yield from admin_checks(settings, refuse)
    yield from trace_checks(settings, refuse)
    if settings.recipients_file is not None and not broken & {"recipients_file", *_BOOK}:
        yield from _recipients(settings.recipients_file, book_limits(settings), refuse)
    yield from _shaping(settings.shaping, refuse)
    if settings.shaping_patterns is not None and "shaping_patterns" not in broken:
        yield from _patterns(settings.shaping_patterns, refuse)
    if not broken & {"shadow_message_preference_setting", "members", "name", "site", *_RETRIES.values()}:
        yield from attempts(settings, refuse)


def _receive(key: str, connector: ReceiveConnector, refuse: Refuse) -> Iterator[SettingError]:
    silence, session = connector.connection_inactivity_timeout, connector.connection_timeout
    if silence >= session:
        yield refuse(
            f"{key}.connection_inactivity_timeout",
            "not below connection_timeout",
            value=format_duration(silence),
            allowed=f"less than {format_duration(session)}",
        )
    delay = connector.max_acknowledgement_delay
    # By default the wait ends with the session at the latest.
    if delay >= session and "max_acknowledgement_delay" in connector.model_fields_set:
        yield refuse(
            f"{key}.max_acknowledgement_delay",
            "not below connection_timeout",
            value=format_duration(delay),
            allowed=f"less than {format_duration(session)}",
        )
    if (connector.tls_certificate is None) != (connector.tls_key is None):
        missing = "tls_key" if connector.tls_key is None else "tls_certificate"
        yield refuse(f"{key}.{missing}", "has to be set", allowed="tls_certificate and tls_key, or neither")
    if connector.implicit_tls:
        yield from _implicit(key, connector, refuse)
    if connector.requiretls and connector.tls_certificate is None:
        yield refuse(f"{key}.tls_certificate", "has to be set: requiretls is true")
    if connector.xclient_networks and connector.accept_xshadow:
        yield refuse(
            f"{key}.xclient_networks", "not beside accept_xshadow: peers are known by addresses of their own"
        )
    certificate, private = f"{key}.tls_certificate", f"{key}.tls_key"
    files = {certificate: connector.tls_certificate, private: connector.tls_key}
    yield from _files(files, refuse, certificate=certificate, key=private)
    if connector.users_file is not None:
        yield from _users(key, connector.users_file, connector, refuse)
    yield from _pinned(key, connector, refuse)
    if connector.filters and connector.accept_xshadow:
        yield refuse(
            f"{key}.filters",
            "not together with accept_xshadow: such a peer keeps each recipient until it hears of it, so no "
            "filter may change them",
            allowed="a connector of its own for peers that track messages",
        )


def _implicit(key: str, connector: ReceiveConnector, refuse: Refuse) -> Iterator[SettingError]:
    """TLS from the first octet leaves no place for what comes before TLS."""
    if connector.tls_certificate is None:
        yield refuse(f"{key}.tls_certificate", "has to be set: implicit_tls is true")
    for other in ("proxy_networks", "accept_xshadow"):
        if getattr(connector, other):
            yield refuse(
                f"{key}.implicit_tls",
                f"not beside {other}",
                allowed="a connector of its own for implicit TLS",
            )


def _pinned(key: str, connector: ReceiveConnector, refuse: Refuse) -> Iterator[SettingError]:
    """Each peer has a name and a certificate of its own: the one tells who shows the other."""
    if connector.tls_certificate is None and any(peer.certificate for peer in connector.accept_xshadow):
        yield refuse(
            f"{key}.tls_certificate",
            "has to be set: peers of accept_xshadow are known by certificates in TLS",
        )
    names: set[str] = set()
    shown: dict[bytes, str] = {}
    for index, peer in enumerate(connector.accept_xshadow):
        at = f"{key}.accept_xshadow[{index}]"
        if peer.name in names:
            yield refuse(f"{at}.name", "another peer has the same name", value=peer.name)
        names.add(peer.name)
        if wrong := _how_known(peer):
            yield refuse(at, wrong)
        if peer.certificate is None:
            continue
        wrong = _unreadable(peer.certificate) or _no_certificate(peer.certificate)
        if wrong:
            yield refuse(f"{at}.certificate", wrong, value=peer.certificate)
            continue
        certificate = pinned_certificate(peer.certificate)
        if other := shown.get(certificate):
            yield refuse(f"{at}.certificate", f"{other} has the same certificate", value=peer.certificate)
        shown.setdefault(certificate, peer.name)


def _how_known(peer: PinnedPeer) -> str | None:
    """What is wrong with the way in which a peer is known."""
    if (peer.certificate is None) is not bool(peer.externally_secured):
        return "has to be known by its certificate, or by externally_secured networks"
    return None


def _users(key: str, file: Path, connector: ReceiveConnector, refuse: Refuse) -> Iterator[SettingError]:
    if connector.tls_certificate is None:
        yield refuse(
            f"{key}.tls_certificate", "has to be set: with users_file users log in, and only over TLS"
        )
    try:
        wrong = _unreadable(file) or (parse_users(file.read_text("utf-8")) and "")
    except UsersInvalid as error:
        wrong = str(error)
    except UnicodeDecodeError:
        wrong = "is not UTF-8"
    if wrong:
        yield refuse(f"{key}.users_file", wrong, value=file, allowed="a file of shadowrelay user add")


def _peer(settings: Settings, broken: frozenset[str], refuse: Refuse) -> Iterator[SettingError]:
    peer = settings.peer
    if peer is None:
        if any(member.name != settings.name for member in settings.members) and not broken & {"peer", "name"}:
            yield refuse("peer", "has to be set", allowed="a table [peer] with listen: there are members")
        return
    files = {"peer.certificate": peer.certificate, "peer.key": peer.key, "peer.ca": peer.ca}
    if not peer.tls and (any(files.values()) or not peer.externally_secured):
        missing = next(key for key, path in files.items() if path is None)
        yield refuse(
            missing,
            "has to be set: members are known by their certificates",
            allowed="certificate, key and ca together, or externally_secured networks alone",
        )
    yield from _files(files, refuse, certificate="peer.certificate", key="peer.key")


def _files(
    files: Mapping[str, Path | None], refuse: Refuse, *, certificate: str = "", key: str = ""
) -> Iterator[SettingError]:
    """Check that the files exist and are certificates, or for ``key`` the private key of ``certificate``."""
    sound: dict[str, Path] = {}
    for name, path in files.items():
        if path is not None:
            if wrong := _unreadable(path) or (name != key and _no_certificate(path)):
                yield refuse(name, wrong, value=path)
            else:
                sound[name] = path
    if {certificate, key} <= sound.keys() and (wrong := _no_key(sound[certificate], sound[key])):
        yield refuse(key, f"{wrong} {certificate}", value=sound[key], allowed=_KEY)


def _unreadable(path: Path) -> str:
    if not path.is_file():
        return "there is no such file"
    try:
        path.open("rb").close()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return ""


def _no_certificate(path: Path) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except (ssl.SSLError, OSError):
        return "holds no certificate in PEM"
    return ""


def _no_key(certificate: Path, key: Path) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError):
        return "is not the private key of"
    return ""


def _members(settings: Settings, broken: frozenset[str], refuse: Refuse) -> Iterator[SettingError]:
    seen: dict[str, int] = {}
    for index, member in enumerate(settings.members):
        key = f"members[{index}]"
        if member.name in seen:
            yield refuse(f"{key}.name", f"members[{seen[member.name]}] has the same name", value=member.name)
        seen.setdefault(member.name, index)
        if member.name != settings.name or broken & {"name", "site", "host"}:
            continue
        for part in ("site", "host"):
            theirs, ours = getattr(member, part), getattr(settings, part)
            if theirs != ours:
                yield refuse(f"{key}.{part}", f'this node has the {part} "{ours}"', value=theirs)
    same = Counter(str(member.address) for member in settings.members)
    for index, member in enumerate(settings.members):
        if same[str(member.address)] > 1:
            yield refuse(
                f"members[{index}].address", "another member has the same address", value=member.address
            )


def _listeners(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    listeners = {f"receive.{name}.listen": table.listen for name, table in settings.receive.items()}
    if settings.peer is not None:
        listeners["peer.listen"] = settings.peer.listen
    listeners["admin.listen"] = settings.admin.listen
    taken: dict[str, HostPort] = {}
    for key, listen in listeners.items():
        if by := next((name for name, place in taken.items() if _same_place(listen, place)), ""):
            where = "" if taken[by] == listen else f", which is {taken[by]}"
            yield refuse(key, f"taken by {by}{where}", value=listen)
        taken[key] = listen


def _same_place(one: HostPort, other: HostPort) -> bool:
    """Whether the two listeners conflict. A wildcard includes every address of its own family only."""
    hosts = {one.host, other.host}
    one_family = (":" in one.host) == (":" in other.host)
    overlap = len(hosts) == 1 or (one_family and not hosts.isdisjoint({"0.0.0.0", "::"}))  # noqa: S104
    return bool(one.port) and one.port == other.port and overlap


def _routes(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    if "*" in settings.accepted_domains:
        yield refuse("accepted_domains", "an open relay", value="*", allowed="domains and *.domain")
    claimed: dict[str, str] = {}
    for name, route in settings.routes.items():
        for domain in dict.fromkeys(route.domains):
            if domain in claimed:
                yield refuse(
                    f"routes.{name}.domains", f"claimed by routes.{claimed[domain]} too", value=domain
                )
            claimed.setdefault(domain, name)
        yield from _hop(f"routes.{name}", route, refuse)
    for name, site in settings.sites.items():
        yield from _hop(f"sites.{name}", site, refuse)
    yield from _files({"mta_sts.ca": settings.mta_sts.ca}, refuse)
    yield from route_checks(settings, refuse)


def _hop(key: str, hop: HopSettings, refuse: Refuse) -> Iterator[SettingError]:
    if hop.tls is not Tls.NONE:
        yield from _files({f"{key}.ca": hop.ca}, refuse)
    yield from _login(key, hop, refuse)
    yield from _tracking_hops(key, hop, refuse)


def _tracking_hops(key: str, route: HopSettings, refuse: Refuse) -> Iterator[SettingError]:
    """Both sides are known by their certificates, in STARTTLS, or the hop by its networks."""
    certificate, private = f"{key}.xshadow_certificate", f"{key}.xshadow_key"
    files = {certificate: route.xshadow_certificate, private: route.xshadow_key}
    yield from _files(files, refuse, certificate=certificate, key=private)
    if not route.send_xshadow:
        return
    shows = any(peer.certificate for peer in route.send_xshadow)
    for name, value in files.items():
        if shows and value is None:
            yield refuse(name, "has to be set: with send_xshadow the hop knows us by our certificate")
    if shows and route.tls is Tls.NONE:
        yield refuse(
            f"{key}.tls",
            "with send_xshadow the hop is known by its certificate",
            value=route.tls,
            allowed="opportunistic or required",
        )
    to_store = isinstance(route, RouteSettings) and route.protocol is not NextHopProtocol.SMTP
    if isinstance(route, RouteSettings) and (route.inside or to_store):
        wrong = "inside the boundary" if route.inside else "an LMTP server"
        yield refuse(f"{key}.send_xshadow", f"the next hop is {wrong}: it tracks nothing")
    shown: dict[bytes, str] = {}
    for index, peer in enumerate(route.send_xshadow):
        at = f"{key}.send_xshadow[{index}].certificate"
        if unknown := _how_known(peer):
            yield refuse(f"{key}.send_xshadow[{index}]", unknown)
        if peer.certificate is None:
            if peer.host:
                yield refuse(f"{key}.send_xshadow[{index}].host", "belongs to a certificate")
            continue
        if wrong := _unreadable(peer.certificate) or _no_certificate(peer.certificate):
            yield refuse(at, wrong, value=peer.certificate)
            continue
        other = shown.setdefault(pinned_certificate(peer.certificate), peer.name)
        if other != peer.name:
            yield refuse(at, f"{other} has the same certificate", value=peer.certificate)


def _journals(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    ways = routes(settings)
    named = {"journal": settings.journal} | {
        f"routes.{name}.journal": route.journal for name, route in settings.routes.items()
    }
    for key, address in named.items():
        if address and route_for(address, ways) is None:
            yield refuse(key, "no route leads there", value=address, allowed="an address that a route covers")


def _recipients(file: Path, limits: BookLimits, refuse: Refuse) -> Iterator[SettingError]:
    wrong = _unreadable(file)
    try:
        if not wrong:
            read_recipients(file, limits)
    except RecipientsInvalid as error:
        wrong = str(error)
    if wrong:
        allowed = "a file that shadowrelay recipients check accepts"
        yield refuse("recipients_file", wrong, value=file, allowed=allowed)


def _shaping(tables: Mapping[str, ShapingSettings], refuse: Refuse) -> Iterator[SettingError]:
    named: dict[str, str] = {}
    for name, table in tables.items():
        key, first = f"shaping.{name}", table.first_connections
        # By default it begins with all of fewer.
        if first > table.connections and "first_connections" in table.model_fields_set:
            most = f"{table.connections} at most"
            yield refuse(f"{key}.first_connections", "above connections", value=first, allowed=most)
        for one in table.match:
            other = named.setdefault(canonical(one.removeprefix("*")), key)
            if other != key:
                yield refuse(f"{key}.match", f"{other} has that name too", value=one)


def _patterns(file: Path, refuse: Refuse) -> Iterator[SettingError]:
    try:
        patterns(file)
    except (PatternsInvalid, OSError) as error:
        wrong = _unreadable(file) or str(error)
        yield refuse("shaping_patterns", wrong, value=file, allowed="a file as in docs/how-to/shaping.md")


def _login(key: str, route: HopSettings, refuse: Refuse) -> Iterator[SettingError]:
    if (route.username is None) != (route.password_file is None):
        missing = "password_file" if route.password_file is None else "username"
        yield refuse(f"{key}.{missing}", "has to be set", allowed="username and password_file, or neither")
    if route.username and route.tls is not Tls.REQUIRED and not route.login_without_tls:
        yield refuse(
            f"{key}.tls",
            "the password could be read on the way, or go to a false server",
            value=route.tls,
            allowed="required, or login_without_tls = true",
        )
    if route.password_file is not None:
        try:
            read_password(route.password_file)
        except NoPassword as wrong:
            yield refuse(f"{key}.password_file", str(wrong), value=route.password_file)


_ANYWHERE = ShadowMessagePreference.PREFER_REMOTE
_RETRIES = {
    ShadowMessagePreference.LOCAL_ONLY: "max_retries_for_local_site_shadow",
    ShadowMessagePreference.REMOTE_ONLY: "max_retries_for_remote_site_shadow",
}


def attempts(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Check that at least one attempt is left for the sites that are asked; ignore the other count.

    So each preference can be set in one step, whatever the counts were. If all members are in one site, the
    preference is ignored and the count of the local site applies.
    """
    policy = settings.policy()
    preference = policy.shadow_message_preference_setting
    sites = {member.site for member in settings.members if member.name != settings.name}
    if sites == {settings.site}:
        keys, where = [_RETRIES[ShadowMessagePreference.LOCAL_ONLY]], "where all members are in one site"
    else:
        keys = [key for only, key in _RETRIES.items() if preference in (only, _ANYWHERE)]
        where = f"with shadow_message_preference_setting {preference}"
    if policy.shadow_redundancy_enabled and not any(getattr(policy, key) for key in keys):
        yield refuse(
            keys[0], "no attempt is left to find a shadow server", value="0", allowed=f"at least 1 {where}"
        )


def trace_checks(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Traces need a library that is an extra of this package."""
    if settings.traces.endpoint and not _can_trace():
        yield refuse(
            "traces.endpoint",
            "the library for traces is not installed: pip install 'shadowrelay[traces]', or leave it out",
            value=settings.traces.endpoint,
        )


def _can_trace() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def admin_checks(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Errors of the list ``admin.tokens``: names and secrets tell who asks, so each is there once."""
    names: set[str] = set()
    secrets = {settings.admin.token.get_secret_value(): "admin.token"} if settings.admin.token else {}
    for index, token in enumerate(settings.admin.tokens):
        at = f"admin.tokens[{index}]"
        if token.name in names:
            yield refuse(f"{at}.name", "another token has the same name", value=token.name)
        names.add(token.name)
        try:
            secret = read_secret(token.file)
        except FileNotFoundError:
            yield refuse(f"{at}.file", "there is no such file", value=token.file)
            continue
        except OSError as error:
            yield refuse(f"{at}.file", f"cannot be read: {error.strerror}", value=token.file)
            continue
        except ValueError as error:
            yield refuse(f"{at}.file", str(error), value=token.file)
            continue
        if other := secrets.get(secret):
            yield refuse(f"{at}.file", f"{other} is the same token", value=token.file)
        secrets.setdefault(secret, f"{at}.file")


Refuse = Callable[..., SettingError]

RESERVED = frozenset({"local", "site"})
"""Names of next hops that are no routes (docs/decisions/0034-from-hop-to-hop.md)."""


_NOT_TO_STRANGERS = "with mx the DNS names the hosts, and the login would go to each of them"


def route_checks(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Errors of where routes lead, and of the table ``dns``."""
    for name, route in settings.routes.items():
        key = f"routes.{name}"
        if name in RESERVED:
            yield refuse(key, "no route may have this name", allowed="any other name")
        yield from _ways(key, route, refuse, elsewhere=route.site not in (None, settings.site))
        for other in route.alternatives:
            if wrong := _unfit(settings, name, other):
                yield refuse(f"{key}.alternatives", wrong, value=other)
    dane = any(route.dane for route in settings.routes.values())
    for index, server in enumerate(settings.dns.servers):
        if not _is_address(server.host):
            yield refuse(f"dns.servers[{index}]", "not an IP address", value=server, allowed="address:port")
        elif dane and not settings.dns.trust_ad and not ip_address(server.host).is_loopback:
            yield refuse(
                f"dns.servers[{index}]",
                "not on this machine: with dane, who is between could make its answers",
                value=server,
                allowed="a resolver on this machine that validates, or dns.trust_ad = true",
            )


def _ways(key: str, route: RouteSettings, refuse: Refuse, *, elsewhere: bool) -> Iterator[SettingError]:
    """Check that a route has exactly one of host, hosts and mx, and that no host comes twice.

    A route whose site is ``elsewhere`` needs none.
    """
    given = [
        name for name, value in (("host", route.host), ("hosts", route.hosts), ("mx", route.mx)) if value
    ]
    if not given and not elsewhere:
        yield refuse(f"{key}.host", "has to be set", allowed="one of host, hosts and mx")
    for name in given[1:]:
        yield refuse(f"{key}.{name}", f"{given[0]} is set too", allowed="one of host, hosts and mx")
    if route.hosts and "port" in route.model_fields_set:
        yield refuse(f"{key}.port", "each of hosts has its own port", value=route.port)
    if route.mx and route.protocol.value == "lmtp":
        yield refuse(f"{key}.mx", "the hosts that the DNS has speak SMTP", allowed='protocol = "smtp"')
    for name in ("username", "password_file"):
        if route.mx and getattr(route, name) is not None:
            yield refuse(
                f"{key}.{name}", _NOT_TO_STRANGERS, allowed="no login with mx; one with host or hosts"
            )
    if route.dane and not route.mx:
        yield refuse(f"{key}.dane", "the DNS does not have the hosts", allowed="mx = true")
    if route.dane and route.tls.value != "opportunistic":
        yield refuse(f"{key}.dane", f"tls is {route.tls.value}", allowed='tls = "opportunistic"')
    if route.mta_sts and not route.mx:
        yield refuse(f"{key}.mta_sts", "the DNS does not have the hosts", allowed="mx = true")
    if route.mta_sts and route.tls.value == "none":
        yield refuse(f"{key}.mta_sts", "tls is none", allowed="another value of tls")
    seen = set()
    for index, host in enumerate(route.hosts):
        if str(host.address) in seen:
            yield refuse(f"{key}.hosts[{index}]", "is there twice", value=host.address)
        seen.add(str(host.address))


def _unfit(settings: Settings, name: str, other: str) -> str:
    """Why a route cannot be an alternative of another one; '' if it can."""
    route, found = settings.routes[name], settings.routes.get(other)
    if found is None:
        return "there is no such route"
    if found.inside != route.inside:
        return f"of the two routes one is inside the boundary: {name if route.inside else other}"
    if found.mx and not route.mx:
        return f"has mx, and the next hop of {name} has no domain"
    if name == other or name in _reached(settings, other):
        return f"leads back to {name}"
    for one in (other, *_reached(settings, other)):
        if (behind := settings.routes.get(one)) and (policy := _weaker(behind, route)):
            return f"{name} has {policy}, and {one} has neither that nor tls = required"
    return ""


def _weaker(other: RouteSettings, route: RouteSettings) -> str:
    """The policy of a route that a host of the other one need not meet; '' if there is none. Whoever can
    break TLS chooses the host, so the weakest one counts.
    """
    if other.tls is Tls.REQUIRED:
        return ""
    policies = {"dane": route.dane and not other.dane, "mta_sts": route.mta_sts and not other.mta_sts}
    return next((name for name, lost in policies.items() if lost), "")


def _reached(settings: Settings, name: str) -> set[str]:
    """The routes that a route's alternatives lead to."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        found = settings.routes.get(ahead.pop())
        for other in found.alternatives if found else ():
            if other not in seen:
                seen.add(other)
                ahead.append(other)
    return seen


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


_LONGEST_NAME = 253
_LAST_PORT = 65535


def worker_checks(settings: Settings, broken: frozenset[str], refuse: Refuse) -> Iterator[SettingError]:
    """``broken``: top-level keys with errors of their own."""
    if "name" not in broken:
        yield from _name("name", settings.name, settings.workers, refuse)
    for index, member in enumerate(settings.members):
        if member.name != settings.name:
            yield from _name(f"members[{index}].name", member.name, member.workers, refuse)
    yield from _members_ports(settings, refuse)
    if settings.workers > 1 and not broken & {"peer", "receive", "admin"}:
        yield from _own_ports(settings, refuse)


def _name(key: str, name: str, workers: int, refuse: Refuse) -> Iterator[SettingError]:
    node = node_of(ServerName(name))
    if node != name:
        yield refuse(key, f"is the name of a worker of {node}", value=name, allowed="no name wK.…")
    elif len(worker_name(node, workers)) > _LONGEST_NAME:
        yield refuse(key, f"is too long: a worker has the name {worker_name(node, workers)}", value=name)


def _members_ports(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Each worker of a member has a port of its own."""
    taken: dict[HostPort, int] = {}
    for index, member in enumerate(settings.members):
        key, last = f"members[{index}].address", member.address.port + member.workers - 1
        if last > _LAST_PORT:
            yield refuse(key, f"its {member.workers} workers have no ports above it", value=member.address)
            continue
        for number in range(1, member.workers + 1):
            at = HostPort(member.address.host, member.address.port + number - 1)
            other = taken.setdefault(at, index)
            first = settings.members[other].address
            if other != index and first != member.address:  # the same address is an error already
                yield refuse(
                    key,
                    f"a worker of {settings.members[other].name} has the port {at.port}",
                    value=member.address,
                )
                break


def _own_ports(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    peer = settings.peer
    if peer is None:
        allowed = 'a table [peer] with listen, such as "127.0.0.1:2526": workers are members of each other'
        yield refuse("peer", "has to be set", allowed=allowed)
        return
    listeners = {f"receive.{name}.listen": one.listen for name, one in settings.receive.items()}
    listeners["admin.listen"] = settings.admin.listen
    for key, listen in {"peer.listen": peer.listen, **listeners}.items():
        if not listen.port:
            yield refuse(key, "with workers the port has to be known", value=listen, allowed="a port from 1")
    first, last = peer.listen.port, peer.listen.port + settings.workers - 1
    if last > _LAST_PORT:
        yield refuse(
            "peer.listen", f"its {settings.workers} workers have no ports above it", value=peer.listen
        )
    for key, listen in listeners.items():
        if first and first < listen.port <= last:
            told = f"the workers of this node listen for members on the ports {first} to {last}"
            yield refuse(key, told, value=listen)
    yield from _secured(peer, refuse)


def _secured(peer: MemberConnector, refuse: Refuse) -> Iterator[SettingError]:
    """Without TLS the workers have to believe each other by their address."""
    called = called_at(peer.listen).host
    try:
        address = ip_address(called)
    except ValueError:
        return
    networks = peer.externally_secured
    if not peer.tls and networks and not any(address in network for network in networks):
        yield refuse(
            "peer.externally_secured",
            f"does not contain {called}, where the workers of this node call each other",
        )
