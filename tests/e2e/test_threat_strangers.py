"""Strangers at the members' port of a real node, and members that say they are another."""

from __future__ import annotations

import secrets
import shutil
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from raw_client import RawClient, connected
from running_lab import RunningLab, wait_until

from shadowlab import node_settings
from shadowrelay.authority import Pair, authority_pair, init, issue

pytestmark = pytest.mark.lab

MESSAGE = "01900000-0000-7000-8000-000000000001"
DATABASE = "6f0d7a3e-0000-4000-8000-000000000001"
MARK = "0000000000000001:0"
UNKNOWN = "500 5.5.2 Command not recognised"
COMMANDS = (
    f"XQDISCARD 200 REVOKE={MESSAGE};1;1",
    f"XQDISCARD 200 CHECK={MESSAGE};1",
    f"MAIL FROM:<a@outside.test> XSHADOW={MESSAGE};1;1;{MARK};1795255200000",
)


def hello(name: str) -> str:
    return f"XSHADOW {name} {DATABASE} {MARK} 0000000000000001@0"


def state(lab: RunningLab, name: str = "mx2") -> object:
    """What a stranger could have changed at that node, which knows all other nodes."""
    wait_until(lambda: all(peer.get("database_id") for peer in lab.status(name).peers), "it knows them")
    found = lab.status(name)
    peers = [(peer["name"], peer.get("database_id")) for peer in found.peers]
    return found.queued, found.shadow_held, found.safety_net, found.sequence, peers


def context(lab: RunningLab, own: Pair | None) -> ssl.SSLContext:
    """Trusts the lab's authority, and shows this certificate."""
    trusted = authority_pair(lab.cluster.layout.authority).certificate
    made = ssl.create_default_context(cafile=str(trusted))
    if own is not None:
        made.load_cert_chain(own.certificate, own.key)
    return made


def heard(lab: RunningLab, own: Pair | None) -> bytes:
    """All that a client with this certificate hears at mx2's port for members."""
    node, said = lab.cluster.node("mx2"), b""
    with (
        suppress(OSError),
        socket.create_connection(node.peer, timeout=10) as plain,
        context(lab, own).wrap_socket(plain, server_hostname=node.name) as secured,
    ):
        secured.sendall(f"EHLO mx1\r\n{hello('mx1.lab.test')}\r\n{COMMANDS[0]}\r\n".encode())
        while more := secured.recv(4096):
            said += more
    return said


def issued(lab: RunningLab, directory: Path, name: str) -> Pair:
    """A certificate of the lab's own authority for that name, which is no member's."""
    ours = authority_pair(lab.cluster.layout.authority)
    directory.mkdir()
    for file in (ours.certificate, ours.key):
        shutil.copy(file, directory)
    return issue(directory, name, now=datetime.now(UTC))


@pytest.mark.slow
def test_strangers_at_the_members_port_hear_nothing_and_change_nothing(lab: RunningLab, tmp_path: Path):
    lab.up()
    before = state(lab)
    init(tmp_path / "theirs", name="Theirs", now=datetime.now(UTC))
    forged = issue(tmp_path / "theirs", lab.cluster.node("mx1").name, now=datetime.now(UTC))
    assert heard(lab, None) == b""
    assert heard(lab, forged) == b""
    with socket.create_connection(lab.cluster.node("mx2").peer, timeout=10) as plain, suppress(OSError):
        plain.sendall(b"EHLO mx1\r\n" + f"{hello('mx1.lab.test')}\r\n".encode() * 20)
        said = b""
        while more := plain.recv(4096):
            said += more
        assert b"ESMTP" not in said
    assert state(lab) == before
    lab.send()
    lab.verify()


@pytest.mark.slow
def test_a_certificate_of_our_authority_says_who_one_is_and_nobody_else(lab: RunningLab, tmp_path: Path):
    lab.up()
    before = state(lab)
    node, third = lab.cluster.node("mx2"), lab.cluster.node("mx3")
    stranger = issued(lab, tmp_path / "copy", "mx9.lab.test")
    for own, said in (
        (stranger, "mx9.lab.test"),
        (stranger, "mx1.lab.test"),
        (node_settings.certificate(third), "mx1.lab.test"),
    ):
        with (
            socket.create_connection(node.peer, timeout=10) as plain,
            context(lab, own).wrap_socket(plain, server_hostname=node.name) as secured,
        ):
            client = RawClient(secured)
            assert client.reply().startswith("220 ")
            client.say("EHLO mx1")
            assert client.say(hello(said)) == "550 5.7.1 Not a member"
            assert [client.say(command) for command in COMMANDS] == ["503 5.5.1 XSHADOW needed first"] * 3
    assert state(lab) == before


@pytest.mark.slow
def test_a_member_neither_revokes_a_copy_that_is_held_for_another_nor_talks_it_away(lab: RunningLab):
    lab.up()
    lab.cluster.refuse()
    lab.send()
    (held,) = lab.ids("mx1")
    holder, third = sorted(("mx2", "mx3"), key=lab.held, reverse=True)
    assert lab.held(holder) == 1
    own, node, before = lab.cluster.node(third), lab.cluster.node(holder), state(lab, holder)
    known = lab.status(third)
    introduced = f"{known.database_id} {known.incarnation}:{known.sequence} {known.incarnation}@0"
    with (
        socket.create_connection(node.peer, timeout=10) as plain,
        context(lab, node_settings.certificate(own)).wrap_socket(plain, server_hostname=node.name) as secured,
    ):
        client = RawClient(secured)
        assert client.reply().startswith("220 ")
        client.say(f"EHLO {third}")
        assert client.say(f"XSHADOW {own.name} {introduced}").startswith(f"250 2.0.0 {node.name} ")
        taken = f"250 2.0.0 - {held} 1 taken=mx1.lab.test * "
        for said in (f"REVOKE={held};1;1", f"REVOKE={held};1;9", f"CHECK={held};1", f"CHECK={held};1;0"):
            assert client.say(f"XQDISCARD 0 {said}").startswith(taken)
    assert state(lab, holder) == before
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.accept()
    lab.cluster.start("mx1")
    lab.verify()
    assert len(lab.events(holder, "RESUBMIT")) == 1


@pytest.mark.slow
def test_on_the_public_port_the_verbs_do_not_exist(lab: RunningLab):
    lab.up("receive.default.tarpit_interval=0s")
    before = state(lab)
    invented = f"X{secrets.token_hex(4).upper()}"
    with connected(lab.cluster.node("mx2").smtp) as client:
        client.send(b"EHLO mx1.lab.test\r\n")
        assert "XSHADOW" not in client.reply()
        for command in (hello("mx1.lab.test"), COMMANDS[0], invented):
            assert client.say(command) == UNKNOWN
        assert client.say(COMMANDS[2]) == "555 5.5.4 Parameter XSHADOW not recognised"
    assert state(lab) == before
