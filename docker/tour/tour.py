"""What the guided tour does. Each function says what it did, and what there is to see."""

from __future__ import annotations

from contextlib import suppress
from stat import S_IROTH
from typing import Any

import engine
import letters
import nodes
from engine import NODES, EngineError, compose, docker

SERVERS = ("mailbox", "outside")
LOG_AGE = 40.0  # seconds: max_file_age of docker/lab/node.toml, and some more
SITES = {"node-a": "east", "node-b": "east", "node-c": "west"}


def say(text: str) -> None:
    print(text, flush=True)


def _running(node: str) -> dict[str, Any]:
    """Its state. Raises EngineError for one that is down."""
    seen = engine.state(node)
    if not seen["running"]:
        raise EngineError(f"{node} is down; scripts/lab heal starts it")
    return seen


def up() -> None:
    """Build the images, start the lab, and wait until all of it answers."""
    mounted = engine.ROOT / "docker" / "lab"
    if not all(path.stat().st_mode & S_IROTH for path in (mounted, *mounted.rglob("*"))):
        raise EngineError("the containers' user cannot read docker/lab: chmod -R go+rX docker deploy")
    say("Building the image and starting three nodes, a mailbox server and the rest of the world;")
    say("the first time this takes a minute or two.")
    compose("build", *NODES[:1])
    compose("up", "--detach", *NODES, *SERVERS)
    nodes.wait_until_healthy((*NODES, *SERVERS))
    nodes.settled()
    for node in NODES:
        smtp, admin = engine.published(node, 2525), engine.published(node, 8025)
        if smtp and admin:
            say(f"{node}  site {SITES[node]}  SMTP {smtp[0]}:{smtp[1]}  admin http://{admin[0]}:{admin[1]}")
    say("All answer, and the nodes know each other by certificate. Try: scripts/lab send 10")


def send(number: int, first: str, to: str) -> None:
    """Send mail to a node, or to another one if it does not take it, as a client with three MX hosts does."""
    order = [first, *(node for node in NODES if node != first)]
    by, refusals = letters.send(number, order, to)
    taken = sum(by.values())
    told = ", ".join(f"{times} by {node}" for node, times in sorted(by.items())) or "by nobody"
    say(f"{taken} of {number} messages were answered 250: {told}.")
    if taken:
        say("Each is on the disks of two nodes now, or already delivered. Watch: scripts/lab status")
    if taken < number:
        said = "".join(f"\n{node}: {text}" for node, text in sorted(refusals.items()))
        raise EngineError(f"no node took {number - taken} of them: nothing is promised about these{said}")


def hold() -> None:
    """Let both servers that mail is delivered to answer 451, so that it stays in transit."""
    for server in SERVERS:
        engine.execute(server, "touch", "/data/REFUSE")
    say("The mailbox server and the rest of the world answer 451 now: what is sent stays in transit.")


def release() -> None:
    for server in SERVERS:
        engine.execute(server, "rm", "-f", "/data/REFUSE")
    say("Mail is taken again: the nodes deliver at their next attempt. Watch: scripts/lab count")


def kill(node: str) -> None:
    _running(node)
    docker("kill", engine.container(node))
    say(f"{node} is killed (SIGKILL); its disk is intact.")
    say("Its copies are safe elsewhere: in 10 s (production: 3 h) their holders promote and deliver them.")
    say("Watch: scripts/lab status, and scripts/lab heal to start it again")


def lose_disk(node: str) -> None:
    before = nodes.look(node)
    if before.told is None:
        raise EngineError(f"{node} is {before.condition}; lose-disk kills it itself, so heal it first")
    lost = before.told["database_id"]
    container = engine.container(node)
    docker("kill", container)
    image = docker("inspect", "--format", "{{.Image}}", container).strip()
    # The tracking log counts as shipped away, apart from the file that was open.
    docker(
        "run", "--rm", "--network", "none", "--volumes-from", container, "--entrypoint", "find", image,
        "/tracking", "-type", "f", "-name", ".*", "-delete",
    )  # fmt: skip
    volume = engine.volume(node, "/data")
    docker("rm", container)
    docker("volume", "rm", volume)
    with (letters.out() / "lost-databases").open("a") as book:
        book.write(f"{lost}\n")
    say(f"{node} is killed, and its volume {volume} removed.")
    say(f"Database {lost} is gone, with {before.number('queued')} messages in its queue.")
    say(f"Audit: --lost {lost}, which scripts/lab audit says by itself.")
    compose("up", "--detach", node)
    nodes.wait_until_healthy((node,))
    if away := [other for other in nodes.look_at_all() if other.condition != "up"]:
        say(f"{node} is back with an empty disk, and not all others are there to notice:")
        say(", ".join(f"{other.name} is {other.condition}" for other in away) + ". Next: scripts/lab heal")
        return
    after = nodes.settled()
    queues = ", ".join(f"{other.name} has {other.number('queued')}" for other in after)
    say(f"{node} is back with an empty disk. The others met a database that they did not know, and promoted")
    say(f"what they held for the old one. Queued now: {queues}.")


def drain(node: str) -> None:
    """Empty a node as before an upgrade, and stop it."""
    _running(node)
    say(f"What {node} says to a drain:")
    say(engine.execute(node, "shadowrelay", "drain", allowed=(0, 1)).strip())
    docker("stop", "--time", "30", engine.container(node))
    say(f"{node} is stopped. Upgrade it, move it, or scale it away; scripts/lab heal starts it again.")


def partition(node: str) -> None:
    if not _running(node)["connected"]:
        raise EngineError(f"{node} is cut off already; scripts/lab heal connects it")
    docker("network", "disconnect", engine.network(), engine.container(node))
    say(f"{node} is cut off from everything: it runs, and reaches nobody.")
    say("It takes no mail, as no second copy can be made, and promotes nothing: it may be alone.")
    say("The others ask each other, and promote in 10 s (production: 3 h). Watch: scripts/lab status")


def heal() -> None:
    """Connect what is cut off, start what is down, and wait until all nodes see each other."""
    in_doubt = {}
    for node in NODES:
        seen = engine.state(node)
        if not seen["connected"]:
            if doubtful := nodes.look(node).number("in_doubt"):
                in_doubt[node] = doubtful
            docker("network", "connect", "--alias", node, engine.network(), engine.container(node))
            say(f"{node} is connected again.")
        if not seen["running"]:
            docker("start", engine.container(node))
            say(f"{node} is started, with the disk that it had.")
    nodes.wait_until_healthy((*NODES, *engine.filters()))
    nodes.settled()
    if not in_doubt:
        say("All nodes see each other. Who was away asked the others before it delivered anything.")
        return
    say("All nodes see each other.")
    for node, number in in_doubt.items():
        say(f"{node} was cut off so long that it sends {number} messages in doubt rather than wait on:")
        say("it may have sent them before it could ask the others. Watch: scripts/lab count")


def status() -> None:
    seen = nodes.look_at_all()
    say(f"{'node':8}{'site':6}{'state':18}{'queued':>8}{'shadow held':>13}{'exposed':>9}{'safety net':>12}")
    for node in seen:
        line = f"{node.name:8}{SITES[node.name]:6}{node.condition:18}"
        if node.told:
            for key, width in (("queued", 8), ("shadow_held", 13), ("exposed", 9), ("safety_net", 12)):
                line += f"{node.number(key):{width}}"
        say(line.rstrip())
    holds = ("sh", "-c", "test ! -e /data/REFUSE || echo yes")
    refusing = [server for server in SERVERS if "yes" in engine.execute(server, *holds)]
    if refusing:
        say(f"{' and '.join(refusing)} answer 451 (scripts/lab release ends that)")


def count(patience: float) -> None:
    """Wait until all that was acknowledged is in its mailbox. Raises EngineError if it does not come."""
    try:
        nodes.wait_for(lambda: letters.count().missing == 0 or None, "mail", patience)
    except EngineError:
        say(f"At the mailboxes, per recipient: {letters.count()}")
        raise EngineError(f"not everything is there after {patience:.0f} s: see scripts/lab status") from None
    say(f"At the mailboxes, per recipient: {letters.count()}")


def _open_logs() -> set[str]:
    """The logs that nodes write now; a node renames its log when it closes it."""
    running = [node for node in NODES if engine.state(node)["running"]]
    search = ("find", "/tracking", "-type", "f", "-name", ".*")
    return {f"{node} {log}" for node in running for log in engine.execute(node, *search).split()}


def audit() -> None:
    """Read the tracking logs of all nodes, all that was written before this command among them, and judge."""
    engine.container(NODES[0])  # without a lab there is nothing to read
    written = _open_logs()
    verify = ["verify", "/tracking", "--engine", "spark", "--allow-open"]
    verify += ["--tables", "/tables", "--out", "/out/audit"]
    book = letters.out() / "lost-databases"
    for database in book.read_text().split() if book.exists() else ():
        verify += ["--lost", database]
    say("Spark makes tables of all nodes' tracking logs, sums them up, and judges them.")
    say("The first time its image is built, which takes minutes.")
    say("The nodes close their logs every 30 s: the audit waits for what they wrote before this command.")
    compose("--profile", "audit", "build", "audit")
    with suppress(EngineError):  # the audit names the logs that are still open
        nodes.wait_for(lambda: None if written & _open_logs() else True, "closed logs", LOG_AGE)
    for command in ["ingest", "/tracking", "--tables", "/tables"], ["summary", "--tables", "/tables"], verify:
        compose("--profile", "audit", "run", "--rm", "-T", "audit", *command, quiet=False)
    say(f"The report: {letters.out() / 'audit' / 'report.html'}")


def down() -> None:
    profiles = ("swaks", "mx", "audit", "notebook", "observe")
    everything = [word for profile in profiles for word in ("--profile", profile)]
    compose(*everything, "down", "--volumes", "--remove-orphans")
    letters.forget()
    say("The lab is gone: its containers, its network and its volumes.")
