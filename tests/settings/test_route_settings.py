"""Where routes lead, in the settings: one host, several, or those of the DNS; alternatives; profiles."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shadowrelay.core.delivery.hosts import Host, HostGroup, MxGroup, RouteHosts, groups
from shadowrelay.core.identifiers import NextHop
from shadowrelay.service.adapters import servers
from shadowrelay.settings import Settings, SettingsInvalid, settings_from_tree
from shadowrelay.settings.routing import route_hosts, routes

OUT = NextHop("out")
LOGIN = {"username": "relay", "password_file": "/dev/null"}


def tree(routes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    given = {"name": "mx1.example.net", "receive": {"default": {"listen": "127.0.0.1:2525"}}}
    return given | {"routes": routes} | changes


def read(routes: dict[str, Any], **changes: Any) -> Settings:
    return settings_from_tree(tree(routes, **changes))


def errors_of(routes: dict[str, Any], **changes: Any) -> dict[str, str]:
    with pytest.raises(SettingsInvalid) as refused:
        read(routes, **changes)
    return {error.key: str(error) for error in refused.value.errors}


def way(**changes: Any) -> dict[str, Any]:
    return {"domains": ["*"], **changes}


def test_hosts_are_named_in_short_or_with_preference_and_weight() -> None:
    hosts = ["a.test:25", {"address": "[::1]:2525", "preference": 20, "weight": 3}]
    found = route_hosts(read({"out": way(hosts=hosts)}))
    assert found == {OUT: RouteHosts(OUT, (Host(OUT, "a.test", 25), Host(OUT, "::1", 2525, 20, 3)))}


def test_a_single_host_has_the_port_of_the_route() -> None:
    assert route_hosts(read({"out": way(host="a.test", port=587)}))[OUT].hosts == (Host(OUT, "a.test", 587),)


def test_with_mx_each_domain_is_looked_up_and_then_the_alternatives_follow() -> None:
    found = read(
        {
            "world": way(mx=True, port=26, alternatives=["smart"]),
            "smart": {"domains": ["smart.test"], "host": "smart.test"},
        }
    )
    assert [route.mx for route in routes(found)] == [True, False]
    assert groups(NextHop("world/example.net"), route_hosts(found)) == (
        MxGroup(NextHop("world"), "example.net", 26),
        HostGroup((Host(NextHop("smart"), "smart.test", 25),)),
    )


def test_an_alternative_of_a_route_with_mx_logs_in_with_its_own_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    login = LOGIN | {"password_file": str(tmp_path / "password")}
    smart = {"domains": ["smart.test"], "host": "smart.test", **login}
    found = servers(read({"world": way(mx=True, alternatives=["smart"]), "smart": smart}))
    assert found[NextHop("world")].login is None
    assert found[NextHop("smart")].login is not None


@pytest.mark.parametrize(
    ("changes", "key", "told"),
    [
        ({}, "routes.out.host", "one of host, hosts and mx"),
        ({"host": "a.test", "hosts": ["b.test:25"]}, "routes.out.hosts", "host is set too"),
        ({"host": "a.test", "mx": True}, "routes.out.mx", "host is set too"),
        ({"hosts": ["b.test:25"], "mx": True}, "routes.out.mx", "hosts is set too"),
        ({"hosts": ["b.test:25"], "port": 26}, "routes.out.port", "each of hosts has its own port"),
        ({"hosts": ["b.test:25", "B.test:25"]}, "routes.out.hosts[1]", "is there twice"),
        ({"hosts": ["b.test"]}, "routes.out.hosts[0].address", "host:port"),
        ({"hosts": [{"address": "b.test:25", "wait": 1}]}, "routes.out.hosts[0].wait", "weight"),
        ({"mx": True, "protocol": "lmtp"}, "routes.out.mx", "speak SMTP"),
        ({"host": "a.test", "dane": True}, "routes.out.dane", "does not have the hosts"),
        ({"mx": True, "dane": True, "tls": "required"}, "routes.out.dane", "tls is required"),
        ({"mx": True, "dane": True, "tls": "none"}, "routes.out.dane", "tls is none"),
        ({"host": "a.test", "mta_sts": True}, "routes.out.mta_sts", "does not have the hosts"),
        ({"mx": True, "mta_sts": True, "tls": "none"}, "routes.out.mta_sts", "tls is none"),
        (LOGIN | {"mx": True}, "routes.out.username", "the login would go to each of them"),
        (LOGIN | {"mx": True}, "routes.out.password_file", "no login with mx"),
        ({"host": "a.test", "alternatives": ["nowhere"]}, "routes.out.alternatives", "no such route"),
        ({"host": "a.test", "alternatives": ["out"]}, "routes.out.alternatives", "leads back to out"),
    ],
)
def test_what_does_not_go_together_is_told(changes: dict[str, Any], key: str, told: str) -> None:
    assert told in errors_of({"out": way(**changes)})[key]


@pytest.mark.parametrize("name", ["site", "local"])
def test_names_of_other_next_hops_are_no_names_of_routes(name: str) -> None:
    assert "no route may have this name" in errors_of({name: way(host="a.test")})[f"routes.{name}"]


def spare(**changes: Any) -> dict[str, Any]:
    return {"domains": ["spare.test"], **changes}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (spare(host="b.test", inside=True), "inside the boundary: spare"),
        (spare(mx=True), "has mx"),
        (spare(host="b.test", alternatives=["out"]), "leads back to out"),
    ],
)
def test_an_alternative_has_to_fit(other: dict[str, Any], told: str) -> None:
    errors = errors_of({"out": way(host="a.test", alternatives=["spare"]), "spare": other})
    assert told in errors["routes.out.alternatives"]


def behind(policy: str, **changes: Any) -> dict[str, Any]:
    """Routes: one with that policy, a strong one behind it, and behind that a spare one."""
    strong = {"domains": ["a.test"], "host": "a.test", "tls": "required", "alternatives": ["spare"]}
    return {
        "out": way(mx=True, alternatives=["strong"], **{policy: True}),
        "strong": strong,
        "spare": spare(**changes),
    }


@pytest.mark.parametrize("policy", ["dane", "mta_sts"])
@pytest.mark.parametrize("tls", ["opportunistic", "none"])
def test_a_host_of_an_alternative_shows_no_less(policy: str, tls: str) -> None:
    """Else whoever breaks TLS with the hosts of a domain has its mail in clear text."""
    told = errors_of(behind(policy, host="b.test", tls=tls))["routes.out.alternatives"]
    assert f"out has {policy}, and spare has neither that nor tls = required" in told


@pytest.mark.parametrize("policy", ["dane", "mta_sts"])
def test_a_host_of_an_alternative_that_is_verified_is_enough(policy: str) -> None:
    assert read(behind(policy, host="b.test", tls="required"))
    same = way(mx=True, alternatives=["spare"], **{policy: True})
    assert read({"out": same, "spare": spare(mx=True, **{policy: True})})


def test_name_servers_are_addresses() -> None:
    found = read({}, dns={"servers": ["127.0.0.1:5353", "[::1]:53"], "timeout": "2s"}).dns
    assert [(one.host, one.port) for one in found.servers] == [("127.0.0.1", 5353), ("::1", 53)]
    assert "no such file" in errors_of({}, mta_sts={"ca": "/nowhere"})["mta_sts.ca"]
    errors = errors_of({}, dns={"servers": ["ns.example.net:53"]})
    assert "not an IP address" in errors["dns.servers[0]"]


def test_with_dane_name_servers_are_on_this_machine_or_trusted() -> None:
    routes = {"out": way(mx=True, dane=True)}
    for named in (["127.0.0.1:53", "[::1]:53"], []):
        assert read(routes, dns={"servers": named}).dns.signed_zone == "."
    errors = errors_of(routes, dns={"servers": ["127.0.0.1:53", "192.0.2.53:53"]})
    assert "not on this machine" in errors["dns.servers[1]"]
    assert read(routes, dns={"servers": ["192.0.2.53:53"], "trust_ad": True}).dns.trust_ad
    assert "a zone of the DNS" in errors_of(routes, dns={"signed_zone": "a b"})["dns.signed_zone"]


@pytest.mark.parametrize(
    ("given", "session", "silence"),
    [
        ({}, 10, 5),
        ({"profile": "mailbox"}, 10, 5),
        ({"profile": "edge"}, 5, 1),
        ({"profile": "edge", "connection_timeout": "7m"}, 7, 1),
        ({"profile": "edge", "connection_inactivity_timeout": "2m"}, 5, 2),
    ],
)
def test_a_profile_has_the_defaults_of_exchange(given: dict[str, Any], session: int, silence: int) -> None:
    """Set-ReceiveConnector: ten and five minutes on mailbox servers, five and one on edge servers."""
    receive = {"default": {"listen": "127.0.0.1:2525", **given}}
    connector = settings_from_tree({"name": "mx1.example.net", "receive": receive}).receive["default"]
    found = (connector.connection_timeout, connector.connection_inactivity_timeout)
    assert found == (timedelta(minutes=session), timedelta(minutes=silence))


@pytest.mark.parametrize(
    ("given", "final_dot", "mail", "data"), [({}, 600, 300, 120), ("20m", 1200, 300, 120), ("1m", 60, 60, 60)]
)
def test_the_silence_of_a_next_hop_has_a_limit(given: Any, final_dot: int, mail: int, data: int) -> None:
    """Set-SendConnector: ten minutes; no step but the last is given more than RFC 5321 4.5.3.2 asks for."""
    limit = {"connection_inactivity_timeout": given} if given else {}
    timeouts = servers(read({"out": way(host="a.test", **limit)}))[OUT].timeouts
    assert (timeouts.final_dot, timeouts.mail, timeouts.data) == (final_dot, mail, data)
    assert timeouts.idle == final_dot
    assert timeouts.connect == min(30, final_dot)
