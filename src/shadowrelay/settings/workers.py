"""The settings of one worker, made of those of its node: its name, its place, and its ports.

Worker 1 stands where a node of one worker stands. Worker K has the name ``wK.NAME``, the directories
``worker-K`` below those of the node, and the peer port K - 1 above that of the node. Each has a share of what
the settings give to the node as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import node_of, worker_name
from shadowrelay.settings.schema import MemberSettings, Settings
from shadowrelay.settings.values import HostPort

SHARED = ("resubmit_rate", "max_outbound_connections", "max_per_domain_outbound_connections")
"""The settings that say how much a node does at most, each of its workers a share."""

_LEAST_DIRECTORY = 10**5  # the least value of the setting
_ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def for_worker(settings: Settings, number: int) -> Settings:
    """The settings with which that worker of the node runs; ``number`` counts from 1. Every member has one
    entry: each worker of the other nodes, and the siblings.
    """
    members = [one for member in settings.members for one in workers_of(member)]
    members += [one for one in _siblings(settings) if one.name != worker_name(_name(settings), number)]
    tracking = settings.tracking
    update = {
        "name": worker_name(_name(settings), number),
        "data_dir": directory_of(settings.data_dir, number),
        "tracking": tracking.model_copy(
            update={
                "directory": directory_of(tracking.directory, number),
                "max_directory_size": max(
                    share(tracking.max_directory_size, number, settings.workers), _LEAST_DIRECTORY
                ),
            }
        ),
        "members": members,
        **{key: share(getattr(settings, key), number, settings.workers) for key in SHARED},
        "holder_choices": _choices(settings),
    }
    if settings.peer is not None:
        listen = _above(settings.peer.listen, number)
        update["peer"] = settings.peer.model_copy(update={"listen": listen})
    return settings.model_copy(update=update)


def workers_in(settings: Settings) -> int:
    """How many workers the node has of which one runs with these settings."""
    own = node_of(_name(settings))
    return 1 + sum(node_of(ServerName(one.name)) == own for one in settings.members)


def _choices(settings: Settings) -> int:
    """Among how many members a worker chooses holders: one of each other node. Its copies go in few sessions
    then, many at a time, which is what a copy's processor time depends on.
    """
    choices = settings.policy().holder_choices
    others = sum(member.host != settings.host for member in settings.members)
    return choices if settings.workers == 1 or not others else min(choices, others)


def share(whole: int, number: int, of: int) -> int:
    """What that worker has of what all have together: the first ones have the rest of the division. At least
    1, so that no worker stands still.
    """
    return max(1, whole // of + (number <= whole % of))


def workers_of(member: MemberSettings) -> Iterator[MemberSettings]:
    """One entry for each worker of a node."""
    for number in range(1, member.workers + 1):
        yield member.model_copy(
            update={
                "name": worker_name(ServerName(member.name), number),
                "address": _above(member.address, number),
                "workers": 1,
            }
        )


def called_at(listen: HostPort) -> HostPort:
    """Where the workers of a node that listens there reach each other."""
    return HostPort(_ANYWHERE.get(listen.host, listen.host), listen.port)


def with_counts(
    members: Iterable[MemberSettings], counts: Mapping[ServerName, int]
) -> Iterator[MemberSettings]:
    """The members, and all workers that nodes say they have, at most ``MOST`` each. Members have one entry a
    worker already; those that a node does not have any more stay.
    """
    found = {ServerName(one.name): one for one in members}
    for node, count in counts.items():
        for one in workers_of(found[node].model_copy(update={"workers": count})) if node in found else ():
            found.setdefault(ServerName(one.name), one)
    yield from found.values()


def _siblings(settings: Settings) -> Iterator[MemberSettings]:
    """The workers of the node itself, as it reaches them."""
    if settings.peer is None or settings.workers == 1:
        return
    yield from workers_of(
        MemberSettings.model_construct(
            name=settings.name,
            address=called_at(settings.peer.listen),
            site=settings.site,
            host=settings.host,
            workers=settings.workers,
        )
    )


def _name(settings: Settings) -> ServerName:
    return ServerName(settings.name)


def _above(address: HostPort, number: int) -> HostPort:
    return HostPort(address.host, address.port + number - 1 if address.port else 0)


def directory_of(directory: Path, number: int) -> Path:
    """What that worker has in place of a directory of the node."""
    return directory if number == 1 else directory / f"worker-{number}"
