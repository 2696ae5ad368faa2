"""Looks at the nodes for ``shadowrelay top``: metrics again and again, and their events as they happen."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from shadowrelay.admin.client import AdminClient, ApiError, NodeEvent
from shadowrelay.cli.top_figures import Look, NodePace, SeenNode, looks, pace, together
from shadowrelay.cli.viewing import clean
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import label, worker_name
from shadowrelay.shown.nodes import WorkersAnswer, node_name

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

    def __init__(self, clients: Sequence[AdminClient], interval: float, *, workers: bool = False) -> None:
        """``workers``: each worker of a node is shown by itself."""
        self._clients = clients
        self._interval = interval
        self._workers = workers
        self._names = {client.url: client.url for client in clients}
        self._seen = {
            client.url: {1: SeenNode(client.url, client.url, why="not asked yet")} for client in clients
        }
        self._events: deque[str] = deque(maxlen=_KEPT)

    @property
    def nodes(self) -> list[SeenNode]:
        found: list[SeenNode] = []
        for url, workers in list(self._seen.items()):
            each = [replace(one, name=self._name_of(url, number)) for number, one in sorted(workers.items())]
            found += each if self._workers else [replace(together(each), name=self._names[url])]
        return found

    def _name_of(self, url: str, number: int) -> str:
        """The name of a node, or of a worker; its URL before it is known."""
        name = self._names[url]
        return name if name == url else worker_name(ServerName(name), number)

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
            page, at = client.metrics(), time.monotonic()
            found = looks(page, at)
        except (ApiError, ValueError) as error:
            why = clean(error).partition(" --admin or ")[0]
            self._seen[client.url] = {number: replace(one, why=why) for number, one in before.items()}
            return
        silent = {number: replace(one, why="it does not answer") for number, one in before.items()}
        self._seen[client.url] = silent | {
            number: self._paced(before.get(number), client.url, seen) for number, seen in found.items()
        }

    @staticmethod
    def _paced(before: SeenNode | None, url: str, found: Look) -> SeenNode:
        last: Look | None = None if before is None or before.why else before.look
        done: NodePace = pace(last, found)
        return SeenNode(url, url, look=found, pace=done)

    def _name(self, client: AdminClient) -> None:
        """Learn a node's name from the beginning of its events."""
        try:
            for event in islice(client.events(NOTABLE), 1):
                self._hear(client, event)
        except ApiError:
            pass

    def _listen(self, client: AdminClient) -> None:
        """Listen to the node; to each of its workers, if it has several."""
        heard: set[int] = set()
        last = ""
        while True:
            for number in self._numbers(client) - heard:
                heard.add(number)
                threading.Thread(target=self._listen_to, args=(client, number), daemon=True).start()
            if not heard:
                last = self._stream(client, None, last)
            time.sleep(AGAIN)

    def _listen_to(self, client: AdminClient, number: int) -> None:
        last = ""
        while True:
            last = self._stream(client, number, last)
            time.sleep(AGAIN)

    def _stream(self, client: AdminClient, worker: int | None, last: str) -> str:
        """Hear events until the stream ends. Returns the id of the last one."""
        try:
            for event in client.events(NOTABLE, last, worker=worker):
                last = event.id or last
                self._hear(client, event)
        except ApiError:
            pass  # the figures say why
        return last

    def _numbers(self, client: AdminClient) -> set[int]:
        """The workers of a node; none of one that is a single process."""
        try:
            return {int(one["number"]) for one in client.get(WorkersAnswer, "workers")["workers"]}
        except (ApiError, KeyError, TypeError, ValueError):
            return set()

    def _hear(self, client: AdminClient, event: NodeEvent) -> None:
        data = event.data
        if event.name == "begin":
            self._names[client.url] = node_name(clean(data.get("node", client.url)))
        elif not event.name and "event-id" in data:
            self._events.append(told(self._names[client.url], data))


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
