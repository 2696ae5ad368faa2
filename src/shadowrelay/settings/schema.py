"""Defines the settings of a node: each with its type, default and range.

The tunables of ``core.policy`` are settings under their own names; their defaults and ranges are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import Field, PrivateAttr, create_model, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from shadowrelay.core.operating import Scope
from shadowrelay.core.policy import Policy
from shadowrelay.settings.filters import FilterSettings
from shadowrelay.settings.origins import DEFAULT, Origin, origin_of
from shadowrelay.settings.outputs import Admin, Log, TraceSettings, Tracking
from shadowrelay.settings.pressure import BackPressureSettings
from shadowrelay.settings.section import Section
from shadowrelay.settings.shaping import ShapingSettings
from shadowrelay.settings.values import (
    Cidr,
    Delimiter,
    DialAddress,
    DomainPattern,
    Duration,
    FilePath,
    Flag,
    Fqdn,
    HostName,
    Integer,
    JournalAddress,
    Label,
    ListenAddress,
    Size,
    TableName,
    UserName,
    Workers,
    ZoneName,
    parse_path,
)

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


class NextHopProtocol(StrEnum):
    SMTP = "smtp"
    LMTP = "lmtp"


class Tls(StrEnum):
    """TLS with a next hop: never, when offered (RFC 7435), or always with a verified certificate."""

    NONE = "none"
    OPPORTUNISTIC = "opportunistic"
    REQUIRED = "required"


class Mechanism(StrEnum):
    """How to log in at a next hop (RFC 4954): only this mechanism is tried."""

    PLAIN = "plain"
    LOGIN = "login"
    CRAM_MD5 = "cram-md5"
    XOAUTH2 = "xoauth2"


class Profile(StrEnum):
    """Which default limits a Receive connector has: those of a mailbox server, or those of an edge server."""

    MAILBOX = "mailbox"
    EDGE = "edge"


class PinnedPeer(Section):
    """A peer beyond the boundary that may track messages here."""

    name: Fqdn = Field(description="The name that it gives in XSHADOW.")
    certificate: FilePath | None = Field(
        None, description="PEM: exactly the certificate that it shows in STARTTLS."
    )
    externally_secured: list[Cidr] = Field(
        [], description="Networks from which this name is believed without a certificate."
    )


class TrackingHop(PinnedPeer):
    """A hop that is told to track messages."""

    host: HostName | None = Field(
        None, description="The host that shows this certificate. Default: any host."
    )


class ReceiveConnector(Section):
    listen: ListenAddress = Field(description="Where this connector listens.")
    profile: Profile = Field(
        Profile.MAILBOX,
        description="Defaults of its two time limits. `edge`: for a connector that faces the Internet.",
    )
    submission: Flag = Field(
        default=False, description="Mail from users (RFC 6409): missing header fields are added."
    )
    tls_certificate: FilePath | None = Field(None, description="PEM chain; with `tls_key` offers STARTTLS.")
    tls_key: FilePath | None = Field(None, description="PEM private key of `tls_certificate`.")
    implicit_tls: Flag = Field(
        default=False, description="TLS begins with the connection, as at port 465, and not by STARTTLS."
    )
    requiretls: Flag = Field(
        default=False,
        description="Offer REQUIRETLS under TLS: such mail leaves only to verified hosts that offer it, too.",
    )
    users_file: FilePath | None = Field(
        None, description="Users who may log in over TLS (AUTH), and then send to any domain: `user add`."
    )
    accept_xshadow: list[PinnedPeer] = Field(
        [], description="Peers beyond the boundary that may track messages here (XSHADOW)."
    )
    proxy_networks: list[Cidr] = Field(
        [], description="Proxies: their connections begin with a PROXY header, version 1 or 2."
    )
    xclient_networks: list[Cidr] = Field(
        [],
        description="Hosts that are believed when they say for which client they speak, and who logged in "
        "there (XCLIENT).",
    )
    max_message_size: Size = Field(64 * 2**20, ge=2**10, le=2**31, description="Largest message (RFC 1870).")
    max_header_size: Size = Field(256 * 2**10, ge=2**10, le=2**24, description="Largest header section.")
    max_text_line: Size = Field(
        1000, ge=1000, le=2**31, description="Longest text line, CRLF included (RFC 5321 4.5.3.1.6)."
    )
    any_dots: Flag = Field(
        default=False, description="Take local parts such as `user..name`; they are passed on in quotes."
    )
    connection_timeout: Duration = Field(
        default_factory=lambda data: timedelta(minutes=5 if _is_edge(data) else 10),
        ge=_SECOND,
        le=_DAY,
        description="Longest session, busy or not. Default: `10m`; `5m` with the profile `edge`.",
    )
    connection_inactivity_timeout: Duration = Field(
        default_factory=lambda data: timedelta(minutes=1 if _is_edge(data) else 5),
        ge=_SECOND,
        le=_DAY,
        description="Longest silence; below `connection_timeout`. Default: `5m`; `1m` with `edge`.",
    )
    max_acknowledgement_delay: Duration = Field(
        timedelta(seconds=30),
        ge=timedelta(),
        le=timedelta(minutes=10),
        description="Longest wait of a 250 for the next hops, if no member has a copy; 0s: none.",
    )
    tarpit_interval: Duration = Field(
        timedelta(seconds=5),
        ge=timedelta(),
        le=timedelta(minutes=10),
        description="Delay before a 5yz reply.",
    )
    max_protocol_errors: Integer = Field(5, ge=1, le=1000, description="Errors after which a session ends.")
    max_junk_commands: Integer = Field(
        100, ge=10, le=100_000, description="Commands between two messages after which a session ends."
    )
    max_inbound_connection: Integer = Field(5000, ge=1, le=100_000, description="Sessions at a time.")
    max_inbound_connection_per_source: Integer = Field(
        20, ge=1, le=100_000, description="Sessions at a time from one address."
    )
    connection_rate_limit: Integer | None = Field(
        None, ge=1, le=1_000_000, description="Connections a minute from one network. Default: no limit."
    )
    message_rate_limit: Integer | None = Field(
        None, ge=1, le=1_000_000, description="Messages a minute from one network. Default: no limit."
    )
    recipient_rate_limit: Integer | None = Field(
        None, ge=1, le=1_000_000, description="Recipients a minute from one network. Default: no limit."
    )
    user_message_rate_limit: Integer | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Messages a minute of one user who logged in. Default: no limit.",
    )
    user_recipient_rate_limit: Integer | None = Field(
        None, ge=1, le=1_000_000, description="Recipients a minute of one such user. Default: no limit."
    )
    rate_ipv4_prefix: Integer = Field(
        32, ge=8, le=32, description="Bits of an IPv4 address that are one network."
    )
    rate_ipv6_prefix: Integer = Field(
        64, ge=16, le=128, description="Bits of an IPv6 address that are one network."
    )
    max_recipients_per_message: Integer = Field(
        200, ge=100, le=20_000, description="Recipients after which 452 is answered (RFC 5321 4.5.3.1.8)."
    )
    filters: dict[TableName, FilterSettings] = Field({}, description="Filters (milter), asked in this order.")
    max_filter_time: Duration = Field(
        timedelta(seconds=45),
        ge=_SECOND,
        le=timedelta(minutes=5),
        description="Time of all filters together for one message; then they are down for it.",
    )


def _is_edge(data: Mapping[str, Any]) -> bool:
    return data.get("profile") is Profile.EDGE


class MemberConnector(Section):
    listen: ListenAddress = Field(description="Where other members connect to this one.")
    certificate: FilePath | None = Field(None, description="PEM chain that shows our name to members.")
    key: FilePath | None = Field(None, description="PEM private key of `certificate`.")
    ca: FilePath | None = Field(
        None, description="PEM certificate of the authority that vouches for members."
    )
    externally_secured: list[Cidr] = Field(
        [], description="Networks whose members are trusted without TLS; for labs."
    )
    connection_inactivity_timeout: Duration = Field(
        timedelta(minutes=5), ge=_SECOND, le=_DAY, description="Longest silence in a session between members."
    )
    max_inbound_connection: Integer = Field(
        1000, ge=1, le=100_000, description="Sessions at a time, and as many TLS handshakes."
    )
    peer_operate: Scope = Field(
        Scope.OPERATE,
        description="What members may do here for operators elsewhere; `operate`: what this node may do. "
        "`read` refuses jobs and suspensions that members give; `none` also announcements of members.",
    )

    @property
    def tls(self) -> bool:
        """Whether members use implicit TLS with client certificates; else networks are externally secured."""
        return self.certificate is not None and self.key is not None and self.ca is not None


class MemberSettings(Section):
    name: Fqdn = Field(description="Name of the member, as in its own settings.")
    address: DialAddress = Field(description="Address of its peer connector.")
    site: Label = Field("default", description="Its site.")
    host: Label = Field(
        default_factory=lambda data: data["name"],
        description="Its failure domain: no copy is placed on the host of its owner. Default: `name`.",
    )
    workers: Integer = Field(1, ge=1, le=64, description="Its workers; it announces a change itself.")


class HopSettings(Section):
    """What is said to next hops: how to log in, and TLS."""

    username: UserName | None = Field(None, description="Log in with this name, and `password_file`.")
    password_file: FilePath | None = Field(None, description="Its one line is read at each connection.")
    mechanism: Mechanism = Field(
        Mechanism.PLAIN, description="How to log in; with xoauth2 the file holds an access token."
    )
    login_without_tls: Flag = Field(
        default=False, description="Log in where `tls` is not `required`, in clear text too."
    )
    tls: Tls = Field(
        default_factory=lambda data: Tls.REQUIRED if data["username"] else Tls.OPPORTUNISTIC,
        description="STARTTLS with the next hop.",
    )
    ca: FilePath | None = Field(None, description="PEM authorities for it. Default: those of the system.")
    send_xshadow: list[TrackingHop] = Field(
        [], description="Hops that are told to track messages (XSHADOW), and how each is known."
    )
    xshadow_certificate: FilePath | None = Field(
        None, description="PEM chain that shows our name to these hops; with `xshadow_key`."
    )
    xshadow_key: FilePath | None = Field(None, description="PEM private key of `xshadow_certificate`.")
    connection_inactivity_timeout: Duration = Field(
        timedelta(minutes=10),
        ge=_SECOND,
        le=_DAY,
        description="Longest silence of the next hop in an open session.",
    )


class RouteHostSettings(Section):
    """One of several hosts of a route. ``"a.test:25"`` is short for ``{address = "a.test:25"}``."""

    address: DialAddress = Field(
        description="The host. A string in `hosts` in place of a table is this value."
    )
    preference: Integer = Field(0, ge=0, le=65535, description="Hosts with a lower number come first.")
    weight: Integer = Field(
        1, ge=0, le=65535, description="Its share of the mail, among hosts of the same preference."
    )

    @model_validator(mode="before")
    @classmethod
    def _address_alone(cls, data: Any) -> Any:
        return {"address": data} if isinstance(data, str) else data


class Dns(Section):
    servers: list[DialAddress] = Field(
        [], description="Name servers, by IP address and port. Default: those of the system."
    )
    timeout: Duration = Field(
        timedelta(seconds=5),
        ge=timedelta(milliseconds=100),
        le=timedelta(minutes=5),
        description="Time for the answer to one question, all servers and repeats included.",
    )
    trust_ad: Flag = Field(
        default=False,
        description="With `dane`: believe name servers on other machines that an answer is authentic.",
    )
    signed_zone: ZoneName = Field(
        ".", description="With `dane`: a signed zone, which shows whether the name servers validate."
    )


class MtaSts(Section):
    port: Integer = Field(443, ge=1, le=65535, description="Port of policy hosts; another one is for labs.")
    ca: FilePath | None = Field(
        None, description="PEM authorities for policy hosts. Default: those of the system."
    )


class TlsReports(Section):
    socket: FilePath | None = Field(
        None, description="Unix socket of `tlsrpt-collectd`, which is told each result. Default: nobody is."
    )


class RouteSettings(HopSettings):
    domains: list[DomainPattern] = Field(min_length=1, description="`inside.test`, `*.inside.test` or `*`.")
    site: Label | None = Field(
        None, description="Site of these domains: from another site their mail goes to that site's hosts."
    )
    host: HostName | None = Field(None, description="The next hop. Or set `hosts` or `mx`.")
    hosts: list[RouteHostSettings] = Field([], description="Several hosts, in place of `host`.")
    mx: Flag = Field(
        default=False,
        description="Take the hosts of each domain from the DNS (RFC 5321 5.1), in place of `host`.",
    )
    dane: Flag = Field(
        default=False,
        description="With `mx`: hosts that have TLSA records have to match them (RFC 7672), or mail waits.",
    )
    mta_sts: Flag = Field(
        default=False, description="With `mx`: do what each domain asks for by MTA-STS (RFC 8461)."
    )
    port: Integer = Field(25, ge=1, le=65535, description="Port of `host`, or of the hosts of `mx`.")
    alternatives: list[TableName] = Field(
        [], description="Routes whose hosts are tried, in this order, when no host of this route is left."
    )
    protocol: NextHopProtocol = Field(NextHopProtocol.SMTP, description="What it speaks.")
    inside: Flag = Field(
        default=False, description="The next hop is inside the boundary: delivery there is final."
    )
    machine: Label | None = Field(
        None, description="The `host` on which the next hop runs: a member on another machine delivers."
    )
    journal: JournalAddress | None = Field(
        None, description='Its mail is copied there. Default: `journal` at the top; `""`: nowhere.'
    )


class SiteSettings(HopSettings):
    hosts: list[DialAddress] = Field(
        min_length=1, description="Servers that take mail there, all alike; each is tried once in an attempt."
    )
    hub: Flag = Field(default=False, description="Mail for sites behind it stops there on its way.")


class SiteLinkSettings(Section):
    sites: list[Label] = Field(
        min_length=2, description="Sites that the link connects, each with each of the others."
    )
    cost: Integer = Field(1, ge=1, le=1_000_000, description="Cost of the way between two of them.")


def _policy_fields() -> dict[str, Any]:
    kinds = get_type_hints(Policy)
    notations = {bool: Flag, int: Integer, timedelta: Duration}
    return {
        tunable.name: (
            notations.get(kinds[tunable.name], kinds[tunable.name]),
            Field(
                tunable.default,
                ge=tunable.metadata["least"],
                le=tunable.metadata["most"],
                description=tunable.metadata["doc"],
            ),
        )
        for tunable in fields(Policy)
    }


class GivenSettings(BaseSettings):
    """Settings made of the given values alone: our own sources read them, and report all errors."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


if TYPE_CHECKING:

    class PolicySettings(GivenSettings):
        """A setting for each tunable of `Policy`."""
else:
    PolicySettings = create_model("PolicySettings", __base__=GivenSettings, **_policy_fields())


class Settings(PolicySettings):
    """All settings of one node. `load_settings` reads them; constructing this class reads nothing."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        env_prefix="SHADOWRELAY_",
        env_nested_delimiter="__",
    )

    name: Fqdn = Field(description="FQDN of this node: its name to members, in EHLO and in Received.")
    site: Label = Field("default", description="Site of this node.")
    host: Label = Field(
        default_factory=lambda data: data["name"],
        description="Failure domain of this node: machine, rack or zone. Default: `name`.",
    )
    workers: Workers = Field(1, ge=1, le=64, description="Processes of this node; `auto`: one a core.")
    data_dir: FilePath = Field(Path("/var/lib/shadowrelay"), description="Where the node keeps its data.")
    accepted_domains: list[DomainPattern] = Field(
        [], description="Domains for which mail is accepted from all clients."
    )
    relay_networks: list[Cidr] = Field([], description="Clients that may send to any domain.")
    drain_timeout: Duration = Field(
        timedelta(seconds=30),
        ge=timedelta(),
        le=timedelta(hours=1),
        description="Time to finish, and to hand the queue over, at a stop; with 0s the queue stays.",
    )
    scrub_interval: Duration = Field(
        _DAY,
        ge=timedelta(),
        le=timedelta(days=90),
        description="Time in which a scrub reads all that is kept, to find damage; 0s: only on request.",
    )
    minimum_free_disk: Size = Field(
        256 * 2**20, ge=0, le=2**50, description="With less free space in `data_dir` mail is put off (452)."
    )
    back_pressure: BackPressureSettings = Field(
        default_factory=BackPressureSettings, description="What is refused before anything is full."
    )
    journal: JournalAddress | None = Field(None, description="A copy of each accepted message goes there.")
    recipients_file: FilePath | None = Field(
        None, description="Aliases, lists and known recipients: TOML, or a table as Postfix's `virtual`."
    )
    recipient_delimiter: Delimiter | None = Field(
        None, description="What separates a local part from its detail, such as `+`."
    )
    max_list_depth: Integer = Field(10, ge=1, le=50, description="How deep lists may be nested.")
    max_list_members: Integer = Field(5000, ge=1, le=20_000, description="Members of a list, at most.")
    receive: dict[TableName, ReceiveConnector] = Field({}, description="Receive connectors, at least one.")
    peer: MemberConnector | None = Field(None, description="The connector for members; needed with members.")
    members: list[MemberSettings] = Field(
        [], description="Members of the boundary; an entry for this node is ignored."
    )
    routes: dict[TableName, RouteSettings] = Field({}, description="Next hops.")
    sites: dict[TableName, SiteSettings] = Field({}, description="Sites of other boundaries.")
    site_links: list[SiteLinkSettings] = Field([], description="How the sites are linked.")
    shaping: dict[TableName, ShapingSettings] = Field({}, description="Limits of next hops.")
    shaping_patterns: FilePath | None = Field(
        None,
        description="Replies by which next hops ask for less (TOML). Default: those of the package.",
    )
    dns: Dns = Field(default_factory=Dns, description="How names of next hops are looked up.")
    mta_sts: MtaSts = Field(default_factory=MtaSts, description="Where policies of MTA-STS are fetched.")
    tls_reports: TlsReports = Field(
        default_factory=TlsReports, description="Who is told what became of TLS with next hops (RFC 8460)."
    )
    admin: Admin = Field(default_factory=Admin, description="The node's own HTTP interface.")
    tracking: Tracking = Field(
        default_factory=lambda data: Tracking(directory=data["data_dir"] / "tracking"),
        description="The message tracking log.",
    )
    log: Log = Field(default_factory=Log, description="The diagnostic log.")
    traces: TraceSettings = Field(default_factory=TraceSettings, description="OpenTelemetry traces.")

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _tracking_stands_in_the_data_directory(cls, data: Any) -> Any:
        """Give a `tracking` table without `directory` the one under `data_dir`."""
        given = data.get("tracking") if isinstance(data, dict) else None
        if not isinstance(given, dict) or "directory" in given:
            return data
        parent = data.get("data_dir", cls.model_fields["data_dir"].default)
        try:
            directory = parse_path(parent) / "tracking"
        except ValueError:  # an error of `data_dir`
            directory = Path("tracking")
        return {**data, "tracking": {**given, "directory": directory}}

    def policy(self) -> Policy:
        """The tunables in the form that core takes."""
        return Policy(**{tunable.name: getattr(self, tunable.name) for tunable in fields(Policy)})

    def origin(self, key: str) -> Origin:
        """Where the value of a dotted key came from."""
        return origin_of(key, self._origins) or DEFAULT
