"""The answer: proven, broken, or not provable from these logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shadowaudit.core.evidence import Evidence
from shadowaudit.core.findings import ADVICE, BROKEN, MEANING, Class, Severity

PROVEN, VIOLATED, USAGE, INCOMPLETE = 0, 1, 2, 3
"""Exit statuses."""

_TOLD = 3  # kinds of violation in the sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was audited, and what follows. ``classes``: messages by what was found about them.
    ``repeated``: of the violations those of messages about which something worse was found.

    ``rows``: all that were read, also those about no message and, in ``totals``, of another time.
    ``selected``: only messages of a certain time were asked for.
    """

    totals: Mapping[str, int]
    classes: Mapping[str, int]
    repeated: Mapping[str, int] = field(default_factory=dict)
    evidence: Evidence
    files: int
    nodes: int
    workers: int = 0  # of all nodes, if one has several
    rows: int = 0
    allow_open: bool = False
    selected: bool = False
    engine: str = ""  # what did the work
    timings: Mapping[str, float] = field(default_factory=dict)

    def count(self, severity: Severity) -> int:
        """Findings of that severity; what ``--allow-open`` excuses is a note."""
        return sum(many for name, many in self.classes.items() if self.severity(Class(name)) is severity)

    @property
    def broken(self) -> Mapping[Class, int]:
        """Each violation, worst first, and the messages of which it is the worst: each message once."""
        return {
            what: self.classes[what] - self.repeated.get(what, 0) for what in BROKEN if what in self.classes
        }

    def severity(self, what: Class) -> Severity:
        if what is Class.OPEN and self.allow_open:
            return Severity.NOTE
        return MEANING[what][0]

    @property
    def found(self) -> tuple[tuple[Class, int], ...]:
        """Each class, and how many messages are of it: what is worst first."""
        severities, worst = list(Severity), [*BROKEN, *(what for what in Class if what not in BROKEN)]
        classes = sorted(
            map(Class, self.classes),
            key=lambda what: (severities.index(self.severity(what)), worst.index(what)),
        )
        return tuple((what, self.classes[what]) for what in classes)

    @property
    def recipients(self) -> Mapping[str, int]:
        """How the recipients ended. ``accepted`` is the sum of the next four; ``again``: those that were
        delivered before.
        """
        names = ("delivered", "bounced", "ended", "again", "dropped", "open")
        delivered, bounced, ended, again, dropped, left = (self.totals.get(name, 0) for name in names)
        return {
            "accepted": ended - again - dropped + left,
            "delivered": delivered - again,
            "bounced": bounced,
            "otherwise": ended - delivered - bounced - dropped,
            "open": left,
            "again": again,
        }

    @property
    def work(self) -> str:
        """What did it, and how much: ``Spark 4.2: 3 files → 96 events → 12 messages``."""
        many = {
            "file": self.files,
            "event": self.rows,
            "message": self.totals.get("messages", 0),
        }
        told = " → ".join(counted(number, what) for what, number in many.items())
        return f"{self.engine[:1].upper()}{self.engine[1:]}: {told}"

    @property
    def servers(self) -> str:
        """``3 nodes``, or ``2 nodes (8 workers)``."""
        more = f" ({counted(self.workers, 'worker')})" if self.workers > self.nodes else ""
        return counted(self.nodes, "node") + more

    @property
    def void(self) -> bool:
        """Is nothing known of the time asked for? Of no message everything could be proven."""
        return self.selected and not self.totals.get("messages", 0)

    @property
    def status(self) -> int:
        if self.count(Severity.VIOLATION):
            return VIOLATED
        if self.evidence.gaps or self.count(Severity.UNPROVEN):
            return INCOMPLETE
        return INCOMPLETE if self.void else PROVEN

    @property
    def strength(self) -> str:
        """How much the files can prove: ``logs`` is of the messages in them alone, for some ends are lost;
        ``incomplete`` is no more than the violations that are seen, for evidence is missing.
        """
        if self.evidence.gaps or self.void:
            return "incomplete"
        if self._weaker():
            return "weaker"
        return "logs" if self.evidence.unprovable else "full"

    def _weaker(self) -> tuple[str, ...]:
        """Why these logs prove less than the logs that the relay writes today."""
        asked = self.classes.get(Class.REPORT_UNKNOWN, 0)
        reasons = {
            "Exchange's logs number nothing, so rows that are missing would not show.": self.evidence.weaker,
            "Rows of an older version have no digests, so a content that changed would not show.": (
                self.evidence.undigested
            ),
            "Rows of an older version do not say who wanted no report, so a report that is missing would not "
            f"show: {counted(asked, 'message')} bounced without one.": asked,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What no proof from these logs covers, whatever the verdict is: a sentence or two each."""
        return (*self._weaker(), *self.evidence.unprovable)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence; ``caveats`` has the rest."""
        accepted = counted(self.totals.get("messages", 0), "message")
        gaps, unproven = len(self.evidence.gaps), self.count(Severity.UNPROVEN)
        counts = [counted(gaps, "gap")] if gaps else []
        counts += [f"{counted(unproven, 'message')} not proven"] if unproven else []
        missing = f"evidence is missing ({', '.join(counts)})"
        none = "none was lost, or doubled without an allowed cause"
        match self.status:
            case 0 if self._weaker():
                told = f"Nothing lost or doubled is seen among {accepted}: this is a weaker proof"
            case 0 if self.evidence.unprovable:
                told = f"Proven of the {accepted} in the logs: {none}"
            case 0:
                told = f"Proven: of {accepted} {none}"
            case 1:
                told = f"{self._broken(accepted)}; and {missing}" if counts else self._broken(accepted)
            case _ if self.void:
                told = "Not provable: no message in these logs was received in the time asked for"
            case _:
                told = f"Not provable: no violation is seen among {accepted}, but {missing}"
        return f"{told}{self._operated()}."

    def _broken(self, accepted: str) -> str:
        """What happened to how many, worst first: ``2 of 90 messages were lost, 1 was altered``. Each message
        counts once, for the worst.
        """
        counts = [(many, BROKEN[what]) for what, many in self.broken.items() if many]
        told = [f"{many:,} {'was' if many == 1 else 'were'} {what}" for many, what in counts[:_TOLD]]
        told[0] = told[0].replace(" ", f" of {accepted} ", 1)
        if more := sum(many for many, _ in counts[_TOLD:]):
            told.append(f"and {more:,} more broke another promise")
        return ", ".join(told)

    def _operated(self) -> str:
        """What operators removed, or hold back: nobody should take that for a delivery."""
        acts = {"removed": Class.REMOVED, "suspended": Class.SUSPENDED}
        told = [f"{act} {many:,}" for act, what in acts.items() if (many := self.classes.get(what, 0))]
        return f"; an operator {' and '.join(told)}" if told else ""

    def as_dict(self) -> dict[str, Any]:
        """For verdict.json and ``--json``."""
        return {
            "status": self.status,
            "verdict": {0: "proven", 1: "violated", 3: "incomplete"}[self.status],
            "strength": self.strength,
            "sentence": self.sentence,
            "files": self.files,
            "nodes": self.nodes,
            **({"workers": self.workers} if self.workers > self.nodes else {}),
            "totals": dict(self.totals),
            "recipients": dict(self.recipients),
            "classes": {
                name: {
                    "count": many,
                    **({"repeated": again} if (again := self.repeated.get(name, 0)) else {}),
                    "severity": self.severity(Class(name)).value,
                    "meaning": MEANING[Class(name)][1],
                    "advice": ADVICE.get(Class(name), ""),
                }
                for name, many in self.found
            },
            "gaps": [{"what": gap.what, "where": gap.where, "so": gap.so} for gap in self.evidence.gaps],
            "caveats": list(self.caveats),
            "unprovable": list(self.evidence.unprovable),
            "notes": list(self.evidence.notes),
            "engine": self.engine,
            "timings": {name: round(seconds, 3) for name, seconds in self.timings.items()},
        }


def counted(many: int, what: str) -> str:
    """So many of what has that name."""
    return f"{many:,} {what}" if many == 1 else f"{many:,} {what}s"
