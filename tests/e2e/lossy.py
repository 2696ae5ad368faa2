"""Something between a node and a member: it passes on what they say, until it loses an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shadowlab.layout import Address


class _Call:
    """One connection through it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.asked_meanwhile = False

    def end(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class LossyWay:
    """``lost`` counts the answers that never arrived."""

    def __init__(self, target: Address) -> None:
        self.lost = 0
        self._target = target
        self._calls: list[_Call] = []
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def asked(self) -> int:
        """On how many connections something was said since the way was closed."""
        return sum(call.asked_meanwhile for call in self._calls)

    def hold_back(self) -> None:
        """What callers say waits from now on."""
        self._open.clear()

    def let_pass_and_lose_the_answers(self) -> None:
        """What waited arrives; the first octets of each answer to it do not, and that connection breaks."""
        self._open.set()

    def close(self) -> None:
        self._open.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for call in self._calls:
            call.end()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                call = _Call(client, socket.create_connection(self._target))
            except OSError:
                client.close()
                continue
            self._calls.append(call)
            threading.Thread(target=self._asking, args=(call,), daemon=True).start()
            threading.Thread(target=self._answering, args=(call,), daemon=True).start()

    def _asking(self, call: _Call) -> None:
        with suppress(OSError):
            while said := call.client.recv(65_536):
                if not self._open.is_set():
                    call.asked_meanwhile = True
                    self._open.wait()
                call.server.sendall(said)
        call.end()

    def _answering(self, call: _Call) -> None:
        with suppress(OSError):
            while said := call.server.recv(65_536):
                if call.asked_meanwhile:
                    self.lost += 1
                    break
                call.client.sendall(said)
        call.end()


@contextmanager
def lossy_way(target: Address) -> Iterator[LossyWay]:
    way = LossyWay(target)
    try:
        yield way
    finally:
        way.close()
