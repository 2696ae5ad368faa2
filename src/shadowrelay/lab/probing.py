"""Does a process answer, and what does a node say of itself."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from shadowrelay.lab.layout import Address, Node

_PATIENCE = 2.0  # seconds for one answer on loopback


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """``GET /api/v1/status``: counts of messages, and ``peers`` as the node tells of them."""

    database_id: str
    incarnation: str
    queued: int
    shadow_held: int
    safety_net: int
    exposed: int
    peers: tuple[Mapping[str, Any], ...]


def node_answers(node: Node) -> bool:
    """It greets SMTP clients and says that it is ready."""
    return greeting(node.smtp).startswith("220") and _get(node, "/healthz/ready")[0] == 200


def mailbox_answers(address: Address) -> bool:
    return bool(greeting(address))


def greeting(address: Address) -> str:
    """The first line of an SMTP or LMTP server; empty when nobody is there, or it says nothing in time."""
    try:
        with socket.create_connection(address, _PATIENCE) as connection, connection.makefile("rb") as lines:
            text = lines.readline(512).decode("ascii", "replace")
            connection.sendall(b"QUIT\r\n")
            return text
    except OSError:
        return ""


def status(node: Node, token: str = "") -> NodeStatus | None:
    """What the node says of itself; None when it does not answer."""
    code, body = _get(node, "/api/v1/status", token)
    if code != 200:
        return None
    try:
        tree = json.loads(body)
        return NodeStatus(
            database_id=str(tree["database_id"]),
            incarnation=str(tree["incarnation"]),
            queued=int(tree["queued"]),
            shadow_held=int(tree["shadow_held"]),
            safety_net=int(tree["safety_net"]),
            exposed=int(tree["exposed"]),
            peers=tuple(peer for peer in tree["peers"] if isinstance(peer, dict)),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _get(node: Node, path: str, token: str = "") -> tuple[int, bytes]:
    """Status code and body; code 0 when there is no answer. No proxy of the environment is asked."""
    host, _, port = node.admin.removeprefix("http://").rpartition(":")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(http.client.HTTPConnection(host, int(port), timeout=_PATIENCE)) as connection:
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
