"""What changed routes mean for the next hops that the queue knows."""

from __future__ import annotations

from collections.abc import Iterable

from shadowrelay.core.identifiers import NextHop
from shadowrelay.delivery.attempt import Outbound
from shadowrelay.delivery.hosts import Hosts


def rerouted(hops: dict[NextHop, Outbound], fixed: Iterable[NextHop], hosts: Hosts) -> None:
    """The hosts changed. ``fixed``: the next hops that the settings name now. Attempts under way go on.

    A next hop that leads elsewhere now is tried at once, whatever failed before. One that is gone keeps its
    mail, which goes by its domain, or waits for a route.
    """
    for name in {*hops, *fixed}:
        server = hosts.template(name)
        if name not in hops:
            hops[name] = Outbound(server)
        elif hops[name].server != server or hosts.moved(name):
            hops[name].server = server
            hops[name].restored()
