"""The thirteen counterexamples of the design, those of damage, and what was found here: without its fix each
is found again.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from shadowrelay.core.events import discard_notices
from shadowrelay.core.members import answers, concluding, conversation, questions
from shadowrelay.core.reception import arrivals, holding, redundancy
from tests.proof.fault import Edit, Fault
from tests.proof.planted import SIMULATION
from tests.proof.planting import Bench, imported_from
from tests.simulation.node import Node

from .line import second
from .search import Found, explore
from .setup import Grain, Setup

Within = tuple[Callable[..., Any], str, str]
"""A function, text to take out of it, text to put in."""


@dataclass(frozen=True, slots=True)
class Hole:
    """What goes wrong, where it is looked for, and what is taken out (planted faults by name, own edits)."""

    title: str
    setup: Setup
    planted: tuple[str, ...] = ()
    edits: tuple[Within, ...] = ()

    @property
    def fault(self) -> Fault:
        named = {fault.name: fault for fault in SIMULATION}
        by_name = (edit for name in self.planted for edit in named[name].edits)
        return Fault(
            name=self.title,
            rule="a fix of the design",
            test="",  # none: the exploration itself notices
            edits=(*by_name, *(_edit(*edit) for edit in self.edits)),
        )


def _edit(function: Callable[..., Any], old: str, new: str) -> Edit:
    module = function.__module__
    file = f"{'' if module.startswith('tests.') else 'src/'}{module.replace('.', '/')}.py"
    return Edit(file, old, new, function.__qualname__)


NO_CHECK: Within = (
    conversation.ask,
    "checks = list(ledger.copies_to_check(to, now, CHECKS))",
    "checks: list[Copy] = []",
)
"""Holders do not ask about their copies: it would close the hole a second time."""


SENT = "a sender sends a message to mx1"
TAKEN = "takes the message from mx1"


def _two(*faults: str, grain: Grain = "answers", **what: Any) -> Setup:
    sequence = tuple((fault,) for fault in faults)
    return Setup(faults=sequence, grain=grain, at_once="line" not in what, **what)


HOLES = {
    1: Hole(
        "unknown releases a copy in any incarnation",
        _two("rollback mx1", line=("snapshot", SENT)),
        edits=((questions._unknown, "if speaker.version == 1 and same:", "if True:"),),
    ),
    2: Hole(
        "marks of acknowledgements are not remembered",
        _two("rollback mx2", "disk mx1"),
        ("marks of acknowledgements are not remembered",),
    ),
    3: Hole(
        "an acknowledgement is not checked when the row is written",
        _two("disk mx2", "disk mx1"),
        ("an acknowledgement is not checked when the row is written",),
    ),
    4: Hole(
        "a holder with a new database still counts",
        _two("disk mx2", "disk mx1"),
        ("a holder with a new database still counts",),
    ),
    5: Hole(
        "a row before the reply is decided",
        Setup(faults=(("crash mx2",),), reject=True, grain="answers"),
        ("a row before the reply is decided",),
    ),
    6: Hole(
        "revoke leaves no tombstone",
        _two("late", "disk mx1", reject=True, line=(SENT, "MAIL FROM.*put off", *second(2))),
        ("revoke leaves no tombstone",),
    ),
    7: Hole(
        "events go to certain holders only", _two("lost"), ("events go to certain holders only",), (NO_CHECK,)
    ),
    8: Hole("Safety Net does not answer", _two("rollback mx1"), ("Safety Net does not answer",)),
    9: Hole(
        "delivered counts at the same epoch only",
        _two("crash mx1"),
        ("delivered counts at the same epoch only",),
    ),
    10: Hole(
        "two holders of a lost owner both promote",
        _two(
            "lost",
            "disk mx1",
            nodes=3,
            grain="talks",
            line=(
                *(SENT, "Queued mail.*lost", *second(1), "mx3 > mx1: 250 2.6.0"),
                *("mx1 is killed", "takes .* lost with", "mx1 starts"),
            ),
        ),
        ("every holder promotes",),
    ),
    11: Hole(
        "AFTER without incarnation",
        _two(
            "rollback mx1",
            messages=2,
            grain="talks",
            line=("snapshot", SENT, TAKEN, *second(3), "mx1 is killed", "mx1 starts", *second(3), SENT),
        ),
        ("AFTER without incarnation",),
        (NO_CHECK,),
    ),
    12: Hole(
        "what was taken over is not asked about on a new contact",
        _two(
            "crash mx1",
            defers=1,
            line=(SENT, TAKEN, "reads", "mx1 is killed", *second(8), "not now", "reads"),
        ),
        ("what was taken over is not asked about on a new contact",),
    ),
    13: Hole(
        "ids of reports are drawn",
        _two("disk mx1", refused=True, grain="talks", line=(SENT, TAKEN, "reads")),
        edits=(
            (
                Node.write_reports,
                "report_id(step.copy.id, result.number, ReportKind.FAILED)",
                "MessageId(report_id(step.copy.id, result.number, ReportKind.FAILED)[:-1] + self.name[-1])",
            ),
        ),
    ),
    14: Hole(
        "what a process says that has a successor counts",
        _two("rollback mx2", "disk mx1", grain="talks"),
        edits=((conversation.asked, "if _has_successor(ledger, asker):", "if False:"),),
    ),
    15: Hole(
        "unknown is taken for refused",
        _two("page mx1", grain="talks"),
        edits=((questions._unknown, "if speaker.version == 1 and same:", "if same:"),),
    ),
    16: Hole(
        "a 451 or a hang-up leaves nothing on record",
        _two("crash mx2", reject=True, grain="talks"),
        edits=((redundancy.accept, "if last_resort and uncertain(attempts):", "if False:"),),
    ),
    17: Hole(
        "what a killed process had not answered leaves nothing on record",
        _two("late", "crash mx1", grain="talks"),
        edits=(
            (
                arrivals.forgotten,
                "(DropCopy(arrived), refused(arrived.id, policy, now))",
                "(DropCopy(arrived),)",
            ),
        ),
    ),
    18: Hole(
        "a damaged copy counts as one",
        _two("content mx2", "disk mx1", grain="talks"),
        edits=((answers._answer_as_owner, "if damaged:", "if False:"),),
    ),
    19: Hole(
        "a damaged copy is called unknown",
        _two("content mx1", grain="talks"),
        edits=(
            (
                answers._answer,
                "(*known, Verdict(copy.id, copy.epoch, VerdictKind.DAMAGED))",
                "(*known, Verdict(copy.id, copy.epoch, VerdictKind.UNKNOWN))",
            ),
        ),
    ),
    20: Hole(
        "of damaged rows nothing is known",
        _two("row mx1", grain="talks"),
        edits=((answers.without_copy, "if rows := ledger.damaged(message_id):", "if rows := None:"),),
    ),
    21: Hole(
        "a copy is promoted without a look at its content",
        _two("content mx2", "crash mx1", grain="talks"),
        edits=((concluding.conclude, "if copy.pending and not said.sound:", "if False:"),),
    ),
    22: Hole(
        "a damaged copy is sent",
        _two("content mx1", grain="talks"),
        edits=((Node.read, "if of_content(content) == copy.digests.content:", "if True:"),),
    ),
    23: Hole(
        "a message is restored as if nothing had been sent",
        _two("row mx1", grain="talks"),
        edits=((holding.restore, "for number, status in rows.settled", "for number, status in ()"),),
    ),
    24: Hole(
        "what was settled before a restoration is not told",
        _two("row mx1", grain="talks"),
        edits=((holding.restore, "delivered(here, done)", "delivered(here, ())"),),
    ),
    25: Hole(
        "the owner from which a message was taken over does not hear of its removal",
        _two("cut mx1 > mx2", grain="talks", orders=True, causes=False),
        edits=(
            (discard_notices.order_listeners, "if former and former.lineage else ()", "if False else ()"),
        ),
    ),
    26: Hole(
        "a removal is acknowledged while an attempt is under way",
        _two("cut mx1 > mx2", grain="talks", orders=True, causes=False),
        edits=((conversation.told, "if too_early(ledger, line.verdict)", "if False"),),
    ),
}


def find(number: int, *, deadline: float = inf) -> Found:
    """Explore without that fix, until what it prevents was found: in a process of its own, on a copy."""
    bench = Bench()
    try:
        with bench.planted(HOLES[number].fault) as root:
            command = [sys.executable, "-m", "tests.exploration.holes", str(number)]
            done = subprocess.run(
                [*command, str(deadline - time.monotonic())],
                cwd=root,
                env=imported_from(root),
                stdout=subprocess.PIPE,
                check=True,
            )
            found: Found = pickle.loads(done.stdout)
            return found
    finally:
        bench.clear()


if __name__ == "__main__":
    within = time.monotonic() + float(sys.argv[2])
    sys.stdout.buffer.write(pickle.dumps(explore(HOLES[int(sys.argv[1])].setup, deadline=within)))
