"""The attackers come, and go with whoever called them."""

from __future__ import annotations

import socket

import pytest

from .attackers import attackers
from .smtp_tools import BenchError


def test_they_are_there_while_the_block_runs_and_no_longer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with attackers("shake", port):
            connection, _ = server.accept()
            connection.settimeout(30)
            assert connection.recv(100).startswith(b"\x16\x03\x01")
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass
        finally:
            connection.close()


def test_without_a_relay_to_attack_it_is_said() -> None:
    with socket.socket() as nobody:  # it keeps the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(BenchError, match="did not come"), attackers("drip", port):
            pass
