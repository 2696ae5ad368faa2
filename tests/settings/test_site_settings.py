"""Sites of other boundaries, in the settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shadowrelay.core.delivery.hosts import HostGroup
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.sites import SitePath
from shadowrelay.service.adapters import servers
from shadowrelay.settings import Settings, SettingsInvalid, settings_from_tree
from shadowrelay.settings.routing import routes
from shadowrelay.settings.sites import hop_groups, stops_to, ways
from shadowrelay.settings.ways import ways_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "several-sites.md"

DUBLIN = NextHop("site/dublin")
SITES = {
    "ny": {"hosts": ["hub1.ny.example.net:25"]},
    "london": {"hosts": ["hub1.london.example.net:25", "hub2.london.example.net:25"]},
    "dublin": {"hosts": ["hub1.dublin.example.net:25"]},
}
LINKS = [
    {"sites": ["chicago", "ny"], "cost": 10},
    {"sites": ["ny", "london"], "cost": 20},
    {"sites": ["london", "dublin"]},
]
IRELAND = {"domains": ["example.ie"], "site": "dublin", "host": "store.dublin.example.net"}


def tree(**changes: Any) -> dict[str, Any]:
    given = {
        "name": "mx1.example.net",
        "site": "chicago",
        "receive": {"default": {"listen": "127.0.0.1:2525"}},
        "routes": {"ireland": IRELAND},
        "sites": SITES,
        "site_links": LINKS,
    }
    return given | changes


def read(**changes: Any) -> Settings:
    return settings_from_tree(tree(**changes))


def errors_of(**changes: Any) -> dict[str, str]:
    with pytest.raises(SettingsInvalid) as refused:
        read(**changes)
    return {error.key: str(error) for error in refused.value.errors}


def test_the_same_sites_and_links_on_each_node_are_seen_from_its_own_site() -> None:
    assert ways(read())["dublin"] == SitePath(31, ("ny", "london", "dublin"))
    from_london = read(site="london", sites=SITES | {"chicago": {"hosts": ["hub1.chicago.example.net:25"]}})
    assert ways(from_london)["dublin"] == SitePath(1, ("dublin",))
    assert set(ways(from_london)) == {"chicago", "ny", "dublin"}


def test_a_route_leads_to_its_site_from_others_and_to_its_own_host_there() -> None:
    assert [route.site for route in routes(read())] == ["dublin"]
    own = read(site="dublin", sites=SITES | {"chicago": {"hosts": ["hub1.chicago.example.net:25"]}})
    assert [route.site for route in routes(own)] == [""]


def test_a_hub_is_where_mail_stops() -> None:
    assert stops_to(read(), "dublin") == ("dublin", "london", "ny")
    hub = SITES | {"london": SITES["london"] | {"hub": True}}
    assert stops_to(read(sites=hub), "dublin") == ("london", "ny")
    assert stops_to(read(), "chicago") == ()


def test_the_hosts_of_a_site_are_tried_and_then_those_of_the_sites_back_along_the_path() -> None:
    found = hop_groups(read())
    named = [[str(host) for host in group.hosts] for group in found(DUBLIN) if isinstance(group, HostGroup)]
    london = SITES["london"]["hosts"]
    assert named == [["hub1.dublin.example.net:25"], london, ["hub1.ny.example.net:25"]]
    assert found(NextHop("site/rome")) == found(NextHop("site/chicago")) == ()


def test_the_hosts_of_each_site_are_spoken_to_as_the_settings_of_that_site_say() -> None:
    secure = {"tls": "required", "connection_inactivity_timeout": "20m"}
    found = servers(read(sites=SITES | {"dublin": SITES["dublin"] | secure}))
    assert (found[DUBLIN].tls, found[DUBLIN].timeouts.final_dot) == ("required", 1200)
    assert (found[NextHop("site/ny")].tls, found[NextHop("site/ny")].inside) == ("opportunistic", False)
    groups = hop_groups(read())(DUBLIN)
    templates = [host.route for group in groups if isinstance(group, HostGroup) for host in group.hosts]
    assert templates == ["site/dublin", "site/london", "site/london", "site/ny"]


def test_a_route_to_another_site_needs_no_host_and_one_in_its_own_site_does() -> None:
    route = {"domains": ["example.ie"], "site": "dublin"}
    assert [one.site for one in routes(read(routes={"ireland": route}))] == ["dublin"]
    chicago = {"chicago": {"hosts": ["hub1.chicago.example.net:25"]}}
    errors = errors_of(routes={"ireland": route}, site="dublin", sites=SITES | chicago)
    assert "one of host, hosts and mx" in errors["routes.ireland.host"]


def test_without_sites_there_are_no_ways() -> None:
    assert ways(read(sites={}, site_links=[], routes={})) == {}


@pytest.mark.parametrize(
    ("changes", "key", "told"),
    [
        ({"site_links": LINKS[:2]}, "sites.dublin", "no site_links lead there from chicago"),
        ({"site_links": [*LINKS, {"sites": ["ny", "rome"]}]}, "site_links[3].sites", "no such site"),
        ({"site_links": [*LINKS, {"sites": ["ny", "ny"]}]}, "site_links[3].sites", "names a site twice"),
        ({"site_links": [{"sites": ["ny"]}]}, "site_links[0].sites", "too short"),
        ({"site_links": [{"sites": ["ny", "london"], "cost": 0}]}, "site_links[0].cost", "from 1"),
        ({"routes": {"r": IRELAND | {"site": "rome"}}}, "routes.r.site", "chicago, dublin, london, ny"),
        ({"sites": SITES | {"rome": {"hosts": []}}}, "sites.rome.hosts", "too short"),
        ({"sites": SITES | {"rome": {"hosts": ["a.test"]}}}, "sites.rome.hosts", "host:port"),
        ({"sites": SITES | {"NY": SITES["ny"]}}, "sites.ny", "in upper and lower case alone"),
        (
            {"sites": SITES | {"ny": SITES["ny"] | {"ca": "/nowhere.pem"}}},
            "sites.ny.ca",
            "no such file",
        ),
        (
            {"sites": SITES | {"ny": SITES["ny"] | {"username": "u"}}},
            "sites.ny.password_file",
            "has to be set",
        ),
    ],
)
def test_what_does_not_go_together_is_told(changes: dict[str, Any], key: str, told: str) -> None:
    errors = errors_of(**changes)
    found = [text for one, text in errors.items() if one.startswith(key)]
    assert found, errors
    assert told in found[0]


def on_the_page(site: str) -> Settings:
    """The settings of the page on several sites, for a node in that site."""
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    receive = {"default": {"listen": "127.0.0.1:2525"}}
    return settings_from_tree(
        {"name": "mx1.example.net", "receive": receive, **tomllib.loads(example), "site": site}
    )


@pytest.mark.parametrize("site", ["chicago", "ny", "london", "dublin"])
def test_what_the_page_sets_is_right_in_each_site(site: str) -> None:
    assert len(ways(on_the_page(site))) == 3


def test_what_the_page_says_of_mail_from_chicago_is_so() -> None:
    addresses = ["a@london.example.net", "b@dublin.example.net"]
    london, dublin = ways_of(on_the_page("chicago"), addresses)
    assert (london.next_hop, dublin.next_hop) == ("site/london", "site/london")
    assert (london.path, london.cost) == (("ny", "london"), 30)
    assert (dublin.path, dublin.cost) == (("ny", "london", "dublin"), 40)
    assert dublin.hosts[0][0] == "mx1.london.example.net:25"
    (here,) = [way for way in ways_of(on_the_page("london"), addresses) if way.address == addresses[0]]
    assert (here.next_hop, here.site) == ("london", "")
