"""Which route an address takes."""

from __future__ import annotations

import pytest

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.routing import Route, next_hop_for, next_hop_of, postmaster_domain, route_for

ROUTES = (
    Route(NextHop("default"), ("*",)),
    Route(NextHop("below"), ("*.example.net",)),
    Route(NextHop("deeper"), (".deep.example.net",)),
    Route(NextHop("exact"), ("example.net", "example.org"), inside=True),
    Route(NextHop("idn"), ("bücher.example", "xn--strae-oqa.example")),
)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("a@example.net", "exact"),
        ("a@EXAMPLE.Net", "exact"),
        ("a@example.net.", "exact"),
        ("a@www.example.net", "below"),
        ("a@one.two.example.net", "below"),
        ("a@deep.example.net", "below"),
        ("a@x.deep.example.net", "deeper"),
        ("a@notexample.net", "default"),
        ("a@example.com", "default"),
        ('"b@example.org"@example.net', "exact"),
        ("a@bücher.example", "idn"),
        ("a@BÜCHER.example", "idn"),
        ("a@xn--bcher-kva.example", "idn"),
        ("a@[192.0.2.1]", "default"),
        ("a@[IPv6:2001:db8::1]", "default"),
    ],
)
def test_the_most_specific_route_wins(address: str, name: str) -> None:
    route = route_for(address, ROUTES)
    assert route
    assert route.name == name


@pytest.mark.parametrize("order", [ROUTES, ROUTES[::-1]])
def test_the_order_of_routes_does_not_matter_unless_they_are_equally_specific(
    order: tuple[Route, ...],
) -> None:
    route = route_for("a@x.deep.example.net", order)
    assert route
    assert route.name == "deeper"


def test_of_two_equal_routes_the_first_counts() -> None:
    twins = (Route(NextHop("one"), ("example.net",)), Route(NextHop("two"), ("example.net",)))
    assert route_for("a@example.net", twins) == twins[0]


@pytest.mark.parametrize("address", ["a@example.com", "a@[192.0.2.1]", "a@deep.example.net"])
def test_without_a_default_what_no_route_names_has_none(address: str) -> None:
    assert route_for(address, (Route(NextHop("only"), ("example.net", ".deep.example.net")),)) is None


@pytest.mark.parametrize("address", ["postmaster", "@example.net", "a@", ""])
def test_an_address_without_local_part_or_domain_has_no_route(address: str) -> None:
    assert route_for(address, ROUTES) is None


def test_a_literal_is_not_a_domain_below_another() -> None:
    assert route_for("a@[x.example.net]", ROUTES[1:]) is None


def test_a_literal_takes_no_other_route_even_if_one_is_spelt_like_it() -> None:
    assert route_for("a@[192.0.2.1]", (Route(NextHop("literal"), ("[192.0.2.1]",)),)) is None


def test_a_name_that_idna_cannot_convert_still_matches_its_own_spelling() -> None:
    odd = "ü" * 80 + ".example"
    assert route_for(f"a@{odd}", (Route(NextHop("odd"), (odd,)),))


@pytest.mark.parametrize(
    ("accepted", "domain"),
    [
        ((), "mx1.example.net"),
        (("*.example.com",), "mx1.example.net"),
        (("*.example.com", "example.com", "example.org"), "example.com"),
        (("example.com", ".example.net"), "mx1.example.net"),
    ],
)
def test_postmaster_alone_is_ours_where_our_name_is_accepted_else_the_first_domains(
    accepted: tuple[str, ...], domain: str
) -> None:
    assert postmaster_domain("mx1.example.net", accepted) == domain


def test_on_a_route_by_mx_each_domain_is_a_next_hop_of_its_own() -> None:
    world = Route(NextHop("world"), ("*",), mx=True)
    assert next_hop_for(world, "anna@Example.ORG.") == "world/example.org"
    assert next_hop_for(Route(NextHop("hub"), ("*",)), "anna@example.org") == "hub"


def test_the_next_hop_of_an_address_is_that_of_its_route() -> None:
    world, hub = Route(NextHop("world"), ("*.org",), mx=True), Route(NextHop("hub"), ("example.net",))
    assert next_hop_of("anna@example.org", (world, hub)) == "world/example.org"
    assert next_hop_of("anna@example.net", (world, hub)) == "hub"
    assert next_hop_of("anna@example.com", (world, hub)) is None


def test_the_domains_of_another_site_go_to_that_site() -> None:
    route = Route(NextHop("ireland"), ("example.ie",), site="dublin")
    assert next_hop_for(route, "a@example.ie") == "site/dublin"
