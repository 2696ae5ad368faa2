"""What is compared with: Debian's Postfix as a relay to the sink, with its queue on the disk under test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.neighbours import postfix as instances
from tests.neighbours.postfix import PostfixError, missing, version

from .proc import family
from .smtp_tools import CONNECTIONS, BenchError
from .subjects import Waited

__all__ = ["PROCESSES", "Postfix", "missing", "postfix", "version"]

PROCESSES = 500
"""smtpd and smtp processes that it may have; as it ships 100."""

_SETTINGS = {
    "maillog_file": "",  # as it ships: a log of its own, by another process, would be measured too
    "in_flow_delay": 0,
    "default_destination_concurrency_limit": 50,
    "default_process_limit": PROCESSES,
    "smtpd_client_connection_count_limit": CONNECTIONS,
    "smtpd_client_connection_rate_limit": 0,
    "smtpd_client_message_rate_limit": 0,
}


class Postfix:
    """It runs."""

    label = "Postfix"

    def __init__(self, instance: instances.Postfix) -> None:
        self.address = instance.address
        self._instance = instance

    def queue_is_empty(self) -> bool:
        return self._instance.queue_is_empty()

    def is_quiet(self) -> bool:
        return self.queue_is_empty()

    def pids(self) -> list[int]:
        """The master and its children."""
        return family(self._instance.master)

    def sides(self) -> list[list[int]]:
        """There is one."""
        return []

    def waits(self) -> Waited | None:
        """It does not tell."""
        return None


@contextmanager
def postfix(directory: Path, *, port: int, next_hop: int) -> Iterator[Postfix]:
    """An instance that listens on ``port`` of loopback, while the block runs. Raises BenchError."""
    settings = {**_SETTINGS, "relayhost": f"[127.0.0.1]:{next_hop}"}
    try:
        with instances.running(directory, port, settings) as instance:
            yield Postfix(instance)
    except PostfixError as trouble:
        raise BenchError(str(trouble)) from trouble
