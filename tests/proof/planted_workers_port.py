"""Faults in the port that the workers of a node share, and in how they count its sessions."""

from __future__ import annotations

from .planting import Fault

_PORT = "a worker gets connections while it serves, and those that it got are answered"
_COUNTS = "the workers of a node together admit no more sessions than the limit says"
_COUNT = "        for cell in cells:\n            self._cells[cell + self._mine] += 1\n"
_PORTS = "smtp/test_shared_ports.py::"

WORKERS_PORT = (
    Fault(
        name="a worker listens before it serves",
        rule=_PORT,
        file="smtp/receiving/connector.py",
        edits=(
            (
                "            sock.bind(address)\n",
                "            sock.bind(address)\n            sock.listen(BACKLOG)\n",
            ),
        ),
        test=f"{_PORTS}test_a_worker_that_is_not_ready_gets_no_connection",
    ),
    Fault(
        name="a worker that stops drops who waits at the port",
        rule=_PORT,
        file="smtp/receiving/connector.py",
        edits=(
            (
                "            waiting = _accepted(self._sockets) if self._shared else []\n",
                "            waiting: list[socket.socket] = []\n",
            ),
        ),
        test=f"{_PORTS}test_whoever_waits_at_a_worker_that_stops_is_answered",
    ),
    Fault(
        name="a worker that drains turns away what its siblings would take",
        rule=_PORT,
        file="smtp/receiving/connector.py",
        edits=(("        if self._shared:\n            await self._leave()\n", ""),),
        test=f"{_PORTS}test_who_drains_leaves_the_port_to_the_others_and_comes_back",
    ),
    Fault(
        name="another program may listen where workers do",
        rule="the port of a node is taken, or an error at its start",
        file="smtp/receiving/connector.py",
        edits=(("        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)\n", ""),),
        test=f"{_PORTS}test_an_address_that_is_kept_for_workers_is_nobody_elses",
    ),
    Fault(
        name="a worker looks before it counts",
        rule=_COUNTS,
        file="smtp/receiving/shared_counts.py",
        edits=(
            (
                f"{_COUNT}        if most is None:\n",
                "        if most is not None and self._seen(cells) >= most:\n            return False\n"
                f"{_COUNT}        if True:\n",
            ),
        ),
        test=f"{_PORTS}test_of_two_workers_that_count_at_the_same_moment_one_sees_both",
    ),
    Fault(
        name="each worker counts its own sessions alone",
        rule=_COUNTS,
        file="smtp/receiving/connector.py",
        edits=(
            (
                "options.max_inbound_connections_per_source, shared\n",
                "options.max_inbound_connections_per_source\n",
            ),
        ),
        test=f"{_PORTS}test_a_source_has_its_number_of_connections_at_all_workers",
    ),
    Fault(
        name="a session that was turned away is counted for good",
        rule="who is turned away takes nobody's place, at whichever worker",
        file="smtp/receiving/shared_counts.py",
        edits=(("        self._less(cells)\n        return False\n", "        return False\n"),),
        test=f"{_PORTS}test_a_session_that_is_turned_away_is_not_counted",
    ),
    Fault(
        name="the sessions of a worker that died are counted on",
        rule="a worker that is gone has no sessions",
        file="service/sharing.py",
        edits=(("    found.forget()\n", ""),),
        test=f"{_PORTS}test_a_worker_that_is_started_again_has_no_sessions",
    ),
)
