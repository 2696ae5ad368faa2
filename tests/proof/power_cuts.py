"""``scripts/prove power-cuts``: the power of one node is cut, again and again, under continuous mail."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from shadowlab.disks import FILE_SYSTEMS, lacking, mounted
from shadowlab.errors import LabError
from shadowlab.guard import terminable
from shadowlab.mail import tracked
from shadowrelay.cli.progress import bar

from .bed.cutting import CUTS, Cutter, Role
from .bed.hop import next_hop
from .bed.needs import Skip, skipping
from .bed.nodes import Stuck, running
from .bed.verdict import Verdict, judge, struck

_EAT_MY_DATA = ("lib/*/libeatmydata.so", "lib/libeatmydata.so", "lib64/libeatmydata.so")  # under /usr
_OCTETS = 2 << 30  # of the disk; it takes as much room as is written to it
_SHORT = 2  # cuts between two verdicts of the control: it ends at the first loss


@dataclass(frozen=True, slots=True)
class Report:
    """Of one role on one file system."""

    role: Role
    file_system: str
    cuts: int
    disks_lost: int
    seconds: float
    verdict: Verdict | None
    stuck: str = ""

    @property
    def problems(self) -> list[str]:
        """Only what was accepted can be lost: one message per cut is the least, and twenty are usual."""
        if self.stuck or self.verdict is None or self.verdict.accepted >= self.cuts > 0:
            return [self.stuck] if self.stuck else []
        return [f"{self.verdict.accepted} accepted in {self.cuts} cuts: too few to show anything"]

    @property
    def kept(self) -> bool:
        return not self.problems and self.verdict is not None and self.verdict.kept

    def tree(self) -> dict[str, Any]:
        return {
            "role": self.role.value,
            "file system": self.file_system,
            "power cuts": self.cuts,
            "other disks lost": self.disks_lost,
            **(self.verdict.counts() if self.verdict else {}),
            "seconds": round(self.seconds, 1),
            "problems": self.problems,
        }


def cut(role: Role, file_system: str, cuts: int, seed: int, directory: Path, preload: str = "") -> Report:
    """Cut the power so many times; with ``preload`` only until something is lost. Raises Skip."""
    if reason := lacking(file_system):
        raise Skip(reason)
    rng = random.Random(f"{seed} {role} {file_system}")
    began = time.monotonic()
    alone = role is Role.ALONE
    stuck, verdict = "", judge({}, {})
    with (
        mounted(directory / "image", directory / "mounted", _OCTETS, file_system) as disk,
        next_hop() as hop,
        running(
            directory / "lab",
            count=1 if alone else 2,
            next_hop=hop.port,
            options=["safety_net_hold_time=10s", f"shadow_redundancy_enabled={str(not alone).lower()}"],
            data={0: disk.place},
            environ={0: {"LD_PRELOAD": preload} if preload else {}},
        ) as nodes,
        bar(f"{role} on {file_system}", cuts) as shown,
    ):
        cutter = Cutter(nodes, hop, disk, role, rng)
        try:
            while cutter.cuts < cuts:
                most = min(_SHORT if preload else CUTS, cuts - cutter.cuts)
                note = f"({verdict.accepted} accepted, {len(verdict.lost)} lost)"
                cutter.epoch(most, partial(shown.step, note))
                verdict = judge(cutter.told(), hop.arrived())
                if verdict.lost or verdict.unexpected:
                    break
        except (Stuck, LabError) as problem:
            stuck = f"after {cutter.cuts} cuts: {problem}"
        readable = () if stuck else nodes  # the file system may still be cut
        rows = (row for node in readable for row in tracked(node.at.tracking_dir))
        verdict = judge(cutter.told(), hop.arrived(), rows, struck(hop.when(), nodes.ends()))
    return Report(role, file_system, cutter.cuts, cutter.disks_lost, time.monotonic() - began, verdict, stuck)


def eat_my_data() -> str:
    """The library that turns every fsync into nothing. Raises Skip."""
    for pattern in _EAT_MY_DATA:
        for path in Path("/usr").glob(pattern):
            return str(path)
    raise Skip("there is no libeatmydata on this machine")


def show(reports: Sequence[Report], *, tokens: int = 20) -> None:
    trees = [report.tree() for report in reports]
    table = Table(title="Power cuts under continuous mail")
    table.add_column("")
    for report in reports:
        table.add_column(f"{report.role.value}, {report.file_system}", justify="right")
    numbers = (name for tree in trees for name, value in tree.items() if isinstance(value, int | float))
    for name in dict.fromkeys(numbers):
        table.add_row(name, *(f"{tree.get(name, 0):,}" for tree in trees))
    Console().print(table)
    for report in reports:
        for problem in report.problems:
            click.echo(f"{report.role}: {problem}")
        if report.verdict:
            for token in (*report.verdict.lost, *report.verdict.unexpected)[:tokens]:
                click.echo(f"{report.role}: {token} is lost or unexpected")


def _roles(role: str) -> list[Role]:
    return [Role.OWNER, Role.HOLDER] if role == "both" else [Role(role)]


@click.command()
@click.option("--cuts", type=click.IntRange(1), default=1000, show_default=True, help="For each role.")
@click.option("--role", type=click.Choice([*(role.value for role in Role), "both"]), default="both")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--filesystem", type=click.Choice(FILE_SYSTEMS), default="ext4", show_default=True)
@click.option("--control", type=click.Choice(["eatmydata"]), help="Without fsync: mail has to be lost.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@skipping
def command(cuts: int, role: str, seed: int, filesystem: str, control: str | None, as_json: bool) -> None:
    """Cut the power of a node at random instants, while clients send.

    The node's data is on a file system of its own. That is shut down without writing its journal
    (FS_IOC_SHUTDOWN), the node is killed, the file system mounted again, and the node started on what is
    left. A 250 from before the cut has to be kept. At every tenth cut the other node loses its disk before
    the one that lost power is started again: what that one has on its disk is all that there is. Role
    "alone": a single node, and no second copies.

    --control eatmydata lets the node that loses power run without fsync, in the same roles: exit status 0
    when mail was lost in each of them, as it must be. Exit status 77: this machine has no loop mounts, no
    mkfs or no libeatmydata, or you are not root.
    """
    preload = eat_my_data() if control else ""
    directory = Path(tempfile.mkdtemp(prefix="prove-power-cuts-"))
    with terminable():
        try:
            reports = [
                cut(one, filesystem, cuts, seed, directory / one.value, preload) for one in _roles(role)
            ]
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    if as_json:
        click.echo(json.dumps([report.tree() for report in reports], indent=2))
    else:
        show(reports, tokens=0 if control else 20)
    if control:
        seen = all(report.verdict and report.verdict.lost and not report.stuck for report in reports)
        click.echo("the control lost mail, as it must" if seen else "the control lost nothing", err=True)
    kept = seen if control else all(report.kept for report in reports)
    if kept:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        click.echo(f"logs and databases: {directory}", err=True)
    sys.exit(not kept)
