"""Who is asked about a member that is silent, and whose silence shows that we may be cut off."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.members.second_opinion import Others, others
from shadowrelay.core.reception.shadow_servers import MemberPlace

US, SILENT = ServerName("mx1"), ServerName("mx2")


def asked(hosts: Mapping[str, str]) -> Others:
    """By mx1 about mx2; ``hosts``: the machine of each member."""
    places = [MemberPlace(ServerName(name), "site", host) for name, host in hosts.items()]
    own = next(place for place in places if place.name == US)
    return others(own, places, SILENT)


def test_every_other_member_is_asked_wherever_it_stands() -> None:
    hosts = {"mx1": "rack1", "mx2": "rack2", "mx3": "rack1", "mx4": "rack2", "mx5": "rack3"}
    assert asked(hosts).members == {"mx3", "mx4", "mx5"}


ALONE = {"mx1": "rack1", "mx2": "rack2"}


@pytest.mark.parametrize(
    ("more", "answered", "cut_off"),
    [
        ({}, (), False),  # a boundary of two: time alone decides
        ({"mx3": "rack3"}, (), True),
        ({"mx3": "rack3"}, ("mx3",), False),
        ({"mx3": "rack1"}, (), False),  # two machines are a boundary of two
        ({"mx3": "rack1"}, ("mx3",), False),
        ({"mx3": "rack2"}, (), False),
        ({"mx3": "rack1", "mx4": "rack2"}, ("mx3",), False),
        ({"mx3": "rack1", "mx4": "rack3"}, ("mx3",), True),  # a member beside us is no witness
        ({"mx3": "rack1", "mx4": "rack3"}, ("mx4",), False),
        ({"mx3": "rack2", "mx4": "rack3"}, ("mx3",), False),  # it is the silent one's machine that answers
        ({"mx3": "rack3", "mx4": "rack3"}, (), True),
        ({"mx3": "rack3", "mx4": "rack3"}, ("mx4",), False),  # one of a machine is as good as all
    ],
)
def test_only_another_machine_shows_that_we_are_not_cut_off(
    more: dict[str, str], answered: tuple[str, ...], cut_off: object
) -> None:
    assert asked(ALONE | more).none_of(map(ServerName, answered)) is cut_off
