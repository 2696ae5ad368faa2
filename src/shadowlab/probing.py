"""Asks whether a process answers, and what a node says of itself."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from shadowlab.layout import Address, LabNode
from shadowlab.node_settings import admin_token
from shadowrelay.admin.client import AdminClient, ApiError
from shadowrelay.shown.messages import MessageEntry, MessagesPage
from shadowrelay.shown.status import DrainEntry

_PAGE = 500  # messages
_COUNTED = ("queued", "shadow_held", "safety_net", "exposed", "asking", "promoting")
_PATIENCE = 2.0  # seconds for one answer on loopback


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The answer to ``GET /api/v1/status``: counts of messages, and ``peers`` as the node reports them.

    ``drained``: the node is being drained, and nothing is left to deliver or hand over.
    """

    database_id: str
    incarnation: str
    sequence: int
    queued: int
    shadow_held: int
    safety_net: int
    exposed: int
    asking: int
    promoting: int
    draining: bool
    drained: bool
    peers: tuple[Mapping[str, Any], ...]


def node_answers(node: LabNode) -> bool:
    """Whether its admin API answers and it greets SMTP clients, unless it is being drained."""
    found = status(node)
    return found is not None and (found.draining or greeting(node.smtp).startswith("220"))


def mailbox_answers(address: Address) -> bool:
    return bool(greeting(address))


def greeting(address: Address) -> str:
    """The first line of an SMTP or LMTP server; empty if none comes in time."""
    try:
        with socket.create_connection(address, _PATIENCE) as connection, connection.makefile("rb") as lines:
            text = lines.readline(512).decode("ascii", "replace")
            connection.sendall(b"QUIT\r\n")
            return text
    except OSError:
        return ""


def status(node: LabNode) -> NodeStatus | None:
    """The status of a node; None if it does not answer. That of several workers has their sums, the peers of
    all, and the database of the first; None unless all answer.
    """
    if node.workers == 1:
        return _status(node)
    found = [_status(node, "workers", str(number)) for number in range(1, node.workers + 1)]
    answers = [one for one in found if one is not None]
    if len(answers) < len(found):
        return None
    return replace(
        answers[0],
        **{name: sum(getattr(one, name) for one in answers) for name in _COUNTED},
        draining=all(one.draining for one in answers),
        drained=all(one.drained for one in answers),
        peers=tuple(peer for one in answers for peer in one.peers),
    )


def database_of(node: LabNode, number: int) -> str | None:
    """The database of a worker; None if it does not answer."""
    found = _status(node, *(("workers", str(number)) if node.workers > 1 else ()))
    return found.database_id if found else None


def _status(node: LabNode, *of: str) -> NodeStatus | None:
    """``of``: where the API of a worker begins."""
    try:
        tree = _api(node).get(dict[str, Any], *of, "status")
        draining = bool(tree["draining"])
        return NodeStatus(
            database_id=str(tree["database_id"]),
            incarnation=str(tree["incarnation"]),
            sequence=int(tree["sequence"]),
            queued=int(tree["queued"]),
            shadow_held=int(tree["shadow_held"]),
            safety_net=int(tree["safety_net"]),
            exposed=int(tree["exposed"]),
            asking=int(tree["asking"]),
            promoting=int(tree.get("promoting", 0)),  # an older version does not report it
            draining=draining,
            drained=draining and bool(_api(node).get(DrainEntry, *of, "drain")["done"]),
            peers=tuple(peer for peer in tree["peers"] if isinstance(peer, dict)),
        )
    except (ApiError, KeyError, TypeError, ValueError):
        return None


def listed(node: LabNode, state: str) -> list[str]:
    """The ids of a node's messages in a state; fewer or none if it stops answering."""
    found: list[str] = []
    after: str | None = None
    with suppress(ApiError, KeyError, TypeError):
        while True:
            page = _api(node).get(MessagesPage, "messages", state=state, after=after, limit=_PAGE)
            found += [str(message["id"]) for message in page["messages"]]
            if (after := page["next"]) is None:
                break
    return found


def message(node: LabNode, message_id: str) -> Mapping[str, Any] | None:
    """What a node knows of a message; None if it knows nothing or does not answer."""
    try:
        return _api(node).get(MessageEntry, "messages", message_id)
    except ApiError:
        return None


def _api(node: LabNode) -> AdminClient:
    return AdminClient(node.admin, admin_token(node), _PATIENCE)
