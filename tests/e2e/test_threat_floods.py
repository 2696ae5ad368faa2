"""Floods and slow clients at a real node: its memory stays flat, and another client still gets its 250."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from raw_client import RawClient, connected
from running_lab import INSIDE, RunningLab, text, wait_until

from shadowlab.mail import message_id

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MIB = 1 << 20
QUICK = ("receive.default.tarpit_interval=0s",)
_CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01"  # its first octets
SLOW = 60.0  # seconds: what a busy machine may take to cut clients off
STARVED = 30.0  # seconds for a message of somebody else; the benchmarks measure what it takes


def memory(lab: RunningLab, what: str) -> dict[str, int]:
    """Octets of each node's memory: VmRSS now, or VmHWM, the most that it ever had."""
    names = [node.short for node in lab.cluster.layout.nodes]
    told = {name: Path(f"/proc/{lab.cluster.process(name).pid}/status").read_text() for name in names}
    return {name: int(text.partition(f"{what}:")[2].split()[0]) << 10 for name, text in told.items()}


@contextmanager
def unharmed(lab: RunningLab, *, growth: int) -> Iterator[Callable[[], None]]:
    """Under attack from here: ``check`` sends mail as another client, and looks at each node's memory."""
    lab.send()  # what is made at the first message does not count
    before = memory(lab, "VmRSS")

    def check() -> None:
        began = time.monotonic()
        lab.send()
        assert time.monotonic() - began < STARVED
        for name, most in memory(lab, "VmHWM").items():
            grown = most - before[name]
            assert grown < growth, f"{name}: {grown / MIB:.0f} MiB more"

    yield check
    check()
    lab.verify()


def ended(client: RawClient | socket.socket) -> bool:
    """Whether the node has closed this connection; what it said before is thrown away."""
    connection = client.socket if isinstance(client, RawClient) else client
    connection.setblocking(False)
    with suppress(BlockingIOError):
        try:
            while connection.recv(65_536):
                pass
        except ConnectionError:
            return True
        return True
    return False


def drip(connections: list[socket.socket], octet: bytes) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.send(octet)


def test_clients_that_drip_their_commands_or_content_are_cut_off_and_cost_nothing(lab: RunningLab):
    lab.up(
        *QUICK, "receive.default.connection_inactivity_timeout=4s", "receive.default.connection_timeout=10s"
    )
    with unharmed(lab, growth=40 * MIB) as check, ExitStack() as stack:
        slow = []
        for number in range(90):
            client = stack.enter_context(connected(lab.cluster.node("mx1").smtp))
            slow.append(client.socket)
            if number % 3:
                assert client.begin(INSIDE).startswith("250 ")
                client.send(b"DATA\r\nX: " if number % 3 == 1 else b"BDAT 1000000000\r\nX: ")
            else:
                client.send(b"EHLO slo")
        check()

        def all_ended() -> bool:
            drip(slow, b"w")
            return all(ended(connection) for connection in slow)

        wait_until(all_ended, "every slow client is cut off", SLOW)


def test_handshakes_that_never_end_take_nothing_from_members_and_senders(lab: RunningLab):
    lab.up(*QUICK, *lab.with_tls())
    with unharmed(lab, growth=60 * MIB) as check, ExitStack() as stack:
        slow = []
        for _ in range(300):
            connection = stack.enter_context(
                socket.create_connection(lab.cluster.node("mx1").peer, timeout=10)
            )
            connection.send(_CLIENT_HELLO)
            slow.append(connection)
        for _ in range(100):
            client = stack.enter_context(connected(lab.cluster.node("mx1").smtp))
            assert client.say("STARTTLS").startswith("220 ")
            client.send(_CLIENT_HELLO)
            slow.append(client.socket)
        check()
        lab.send(to="mx2")
        lab.send(to="mx3")
        wait_until(lambda: all(map(ended, slow)), "every handshake is given up", SLOW)


def test_thousands_of_silent_connections_at_the_members_port_cost_little_and_members_get_through(
    lab: RunningLab,
):
    most, flood = 200, 5000
    lab.up(*QUICK, f"peer.max_inbound_connection={most}", nodes=2)
    pid = lab.cluster.process("mx1").pid
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    with may_open(flood + 1000), ExitStack() as stack:
        slow: list[socket.socket] = []

        def some_more(count: int) -> None:
            for _ in range(count):
                slow.append(stack.enter_context(socket.create_connection(lab.cluster.node("mx1").peer, 30)))
                if len(slow) % 2:
                    slow[-1].send(_CLIENT_HELLO)  # the others say nothing at all

        with unharmed(lab, growth=40 * MIB):
            some_more(flood // 2)
            lab.cluster.kill("mx2")
            lab.up()  # now mx2 has no sessions with mx1, which alone can take its copies
            some_more(flood // 2)
            lab.send(3, to="mx2")
            wait_until(lambda: sum(map(ended, slow)) >= flood - most, "room was made", SLOW)
            assert len(os.listdir(f"/proc/{pid}/fd")) < descriptors + most + 100
        some_more(most)
        lab.cluster.stop("mx1")  # in time, although handshakes are under way


@contextmanager
def may_open(descriptors: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(descriptors, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_node_without_descriptors_puts_mail_off_and_goes_on(lab: RunningLab):
    lab.up(*QUICK)
    process = lab.cluster.process("mx1")
    content = b"Subject: large\r\n\r\n" + (b"x" * 70 + b"\r\n") * 2000
    with (
        unharmed(lab, growth=60 * MIB),
        connected(lab.cluster.node("mx1").smtp) as client,
        ExitStack() as stack,
    ):
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (120, hard))
        for _ in range(200):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.connect(lab.cluster.node("mx1").smtp)
        wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) >= 119, "descriptors run out")
        assert client.begin(INSIDE).startswith("250 ")
        assert client.data(content) == "452 4.3.1 Insufficient system resources"
        stack.close()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        wait_until(lambda: lab.offer(to="mx1", recipients=(INSIDE,)), "mail is taken again", SLOW)
        assert process.alive


def test_a_node_without_descriptors_for_its_next_tracking_file_puts_mail_off_and_lives(lab: RunningLab):
    lab.up(*QUICK, "tracking.max_file_age=1s")
    process = lab.cluster.process("mx1")
    with (
        unharmed(lab, growth=60 * MIB),
        connected(lab.cluster.node("mx1").smtp) as client,
        ExitStack() as stack,
    ):
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (120, hard))
        for _ in range(200):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.connect(lab.cluster.node("mx1").smtp)
        wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) >= 119, "descriptors run out")
        # Below what is in use by now: whatever a file gives back, no other one can be opened.
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (20, hard))
        heard: list[str] = []

        def put_off() -> bool:
            time.sleep(0.3)
            token = f"waits{len(heard)}"
            if (reply := client.say("MAIL FROM:<sender@outside.test>")).startswith("250 "):
                assert client.say(f"RCPT TO:<{INSIDE}>").startswith("250 ")
                if (reply := client.data(text(token))).startswith("250 "):
                    lab.sent_otherwise(token, INSIDE)
            heard.append(reply)
            return reply.startswith("452 ")

        client.say("EHLO client.example")
        wait_until(put_off, "mail is put off", SLOW)
        assert {reply[:3] for reply in heard} <= {"250", "452"}
        assert client.say("NOOP").startswith("250 ")
        assert process.alive
        stack.close()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        wait_until(lambda: lab.offer(to="mx1", recipients=(INSIDE,)), "mail is taken again", SLOW)
        assert process.alive
        assert lab.said("mx1", "tracking_waits_for_a_descriptor")


def test_connections_past_the_limit_are_turned_away_and_members_keep_their_places(lab: RunningLab):
    lab.up(*QUICK, "receive.default.max_inbound_connection=50")
    with unharmed(lab, growth=40 * MIB):
        with ExitStack() as stack:
            heard = []
            for _ in range(300):
                connection = stack.enter_context(
                    socket.create_connection(lab.cluster.node("mx1").smtp, timeout=30)
                )
                heard.append(connection.makefile("rb").readline()[:3])
            assert heard.count(b"220") == 50
            assert heard.count(b"421") == 250
            # Strangers have all the places of mx1's senders, and none of its members'.
            lab.send(to="mx3")
            wait_until(lambda: lab.queued("mx3") == 0, "mx3's mail is copied and delivered")
        wait_until(lambda: lab.offer(to="mx1", recipients=(INSIDE,)), "mail is taken again")


def test_transactions_that_are_begun_and_never_ended_leave_room_at_the_other_members(lab: RunningLab):
    lab.up(*QUICK, "peer.max_inbound_connection=180", nodes=2)
    with unharmed(lab, growth=60 * MIB) as check, ExitStack() as stack:
        for _ in range(400):
            client = stack.enter_context(connected(lab.cluster.node("mx1").smtp))
            assert client.begin().startswith("250 ")  # MAIL, for which a session with mx2 may be opened
        check()
        lab.send(20)


def test_a_flood_of_recipients_keeps_the_first_ones(lab: RunningLab):
    lab.up(*QUICK)
    most = 200
    with unharmed(lab, growth=40 * MIB), connected(lab.cluster.node("mx1").smtp) as client:
        assert client.begin().startswith("250 ")
        commands = b"".join(b"RCPT TO:<flood%d@inside.test>\r\n" % number for number in range(5000))
        client.send(commands)
        replies = [client.reply() for _ in range(5000)]
        assert replies[:most] == ["250 2.1.5 Recipient OK"] * most
        assert set(replies[most:]) == {"452 4.5.3 Too many recipients"}
        assert client.data(text("flood")).startswith("250 ")
        lab.sent_otherwise("flood", *(f"flood{number}@inside.test" for number in range(most)))


def test_a_header_and_a_command_without_end_are_refused_in_flat_memory(lab: RunningLab):
    lab.up(*QUICK, "receive.default.max_protocol_errors=100")
    with unharmed(lab, growth=40 * MIB) as check, ExitStack() as stack:
        clients = [stack.enter_context(connected(lab.cluster.node("mx1").smtp)) for _ in range(10)]
        for client in clients:
            client.send(b"EHLO ", *([b"x" * MIB] * 8), b"\r\n")
            assert client.reply() == "500 5.5.2 Command line too long"
            assert client.begin(INSIDE).startswith("250 ")
            assert client.say("DATA").startswith("354 ")
        field = b"X: " + b"h" * 900 + b"\r\n"
        for _ in range(8):
            for client in clients:
                client.send(field * 1100)
        check()
        for client in clients:
            client.send(b".\r\n")
            assert client.reply() == "552 5.3.4 Message header too big"


def test_a_flood_of_errors_ends_the_session(lab: RunningLab):
    lab.up(*QUICK)
    with unharmed(lab, growth=40 * MIB):
        for _ in range(20):
            with connected(lab.cluster.node("mx1").smtp) as client:
                client.send(b"NONSENSE\r\n" * 500)
                replies = [client.reply() for _ in range(6)]
                assert replies[4:] == [
                    "500 5.5.2 Command not recognised",
                    "421 4.7.0 Too many errors, closing connection",
                ]


def test_a_flood_of_valid_commands_ends_the_sessions_and_keeps_nobody_waiting(lab: RunningLab):
    lab.up(*QUICK, "receive.default.max_inbound_connection_per_source=100")
    with unharmed(lab, growth=40 * MIB) as check, ExitStack() as stack:
        clients = [stack.enter_context(connected(lab.cluster.node("mx1").smtp)) for _ in range(60)]
        for client in clients:
            client.socket.setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                while client.socket.send(b"NOOP\r\nVRFY x\r\nMAIL FROM:<>\r\nRSET\r\n" * 2000):
                    pass
        check()
        wait_until(lambda: all(ended(client) for client in clients), "every session has ended", SLOW)


def test_many_large_messages_at_once_need_little_memory(lab: RunningLab):
    # A node that is busy for longer than the time span is taken for dead, rightly, and mail may come twice.
    lab.up(*QUICK, "shadow_resubmit_time_span=2m")
    block = (b"x" * 70 + b"\r\n") * 900
    with unharmed(lab, growth=200 * MIB) as check, ExitStack() as stack:  # of 1,200
        clients = [stack.enter_context(connected(lab.cluster.node("mx1").smtp)) for _ in range(200)]
        for number, client in enumerate(clients):
            assert client.begin(INSIDE).startswith("250 ")
            assert client.say("DATA").startswith("354 ")
            client.send(f"Message-ID: {message_id(f'large-{number}')}\r\n\r\n".encode())
        for _ in range(6 * MIB // len(block)):
            for client in clients:
                client.send(block)
        check()
        for number, client in enumerate(clients):
            client.send(b".\r\n")
            assert client.reply().startswith("250 ")
            lab.sent_otherwise(f"large-{number}", INSIDE)
