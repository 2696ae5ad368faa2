"""Looks at the nodes for ``shadowrelay top``: metrics again and again, and their events as they happen."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from shadowrelay.admin.client import AdminClient, ApiError, NodeEvent
from shadowrelay.cli.top_figures import Look, NodePace, SeenNode, look, pace
from shadowrelay.cli.viewing import clean
from shadowrelay.operator.grouping import label, node_name

NOTABLE = (
    "FAIL",
    "HAREDIRECTFAIL",
    "HADAMAGE",
    "HARESTORE",
    "RESUBMIT",
    "SUSPEND",
    "RESUME",
    "RETRY",
    "REMOVE",
    "DROP",
    "LOAD",
)
"""Events that are shown one by one: what happens to most messages is in the figures."""

AGAIN = 2.0
"""Seconds after which a node that did not answer is asked again."""

_KEPT = 200  # events


class NodesWatch:
    """Looks at nodes in threads of its own, which end with the process. ``nodes`` and ``events`` may be read
    at any time.
    """

    def __init__(self, clients: Sequence[AdminClient], interval: float) -> None:
        self._clients = clients
        self._interval = interval
        self._seen = {client.url: SeenNode(client.url, client.url, why="not asked yet") for client in clients}
        self._events: deque[str] = deque(maxlen=_KEPT)

    @property
    def nodes(self) -> list[SeenNode]:
        return list(self._seen.values())

    @property
    def events(self) -> list[str]:
        return list(self._events)

    def start(self) -> None:
        for client in self._clients:
            for work in (self._look_on, self._listen):
                threading.Thread(target=work, args=(client,), daemon=True).start()

    def once(self) -> None:
        """Look twice at each node, an interval apart. Raises ApiError if no node answers."""
        for client in self._clients:
            self._name(client)
            self._look(client)
        time.sleep(self._interval)
        for client in self._clients:
            self._look(client)
        if all(node.why for node in self.nodes):
            raise ApiError("; ".join(node.why for node in self.nodes))

    def _look_on(self, client: AdminClient) -> None:
        while True:
            self._look(client)
            time.sleep(self._interval)

    def _look(self, client: AdminClient) -> None:
        before = self._seen[client.url]
        try:
            found = look(client.metrics(), time.monotonic())
        except (ApiError, ValueError) as error:
            why = clean(error).partition(" --admin or ")[0]
            self._seen[client.url] = replace(self._seen[client.url], why=why)
            return
        last: Look | None = None if before.why else before.look
        done: NodePace = pace(last, found)
        self._seen[client.url] = replace(self._seen[client.url], look=found, pace=done, why="")

    def _name(self, client: AdminClient) -> None:
        """Learn a node's name from the beginning of its events."""
        try:
            for event in islice(client.events(NOTABLE), 1):
                self._hear(client, event)
        except ApiError:
            pass

    def _listen(self, client: AdminClient) -> None:
        last = ""
        while True:
            try:
                for event in client.events(NOTABLE, last):
                    last = event.id or last
                    self._hear(client, event)
            except ApiError:
                pass  # the figures say why
            time.sleep(AGAIN)

    def _hear(self, client: AdminClient, event: NodeEvent) -> None:
        data = event.data
        if event.name == "begin":
            name = node_name(clean(data.get("node", client.url)))
            self._seen[client.url] = replace(self._seen[client.url], name=name)
        elif not event.name and "event-id" in data:
            self._events.append(told(self._seen[client.url].name, data))


def told(node: str, columns: Mapping[str, str]) -> str:
    """An event on one line."""
    at = columns.get("date-time", "")[11:19]
    parts = [
        columns.get("event-id", ""),
        columns.get("network-message-id", "")[-12:],
        columns.get("recipient-address", ""),
        columns.get("recipient-status", "") or columns.get("source-context", ""),
    ]
    return clean(" ".join([at, label(node), *filter(None, parts)]))
