"""One message of a story, and the rows of its ordinary life."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from shadowlab.generate.writing import GeneratedRow
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import MessageId
from shadowrelay.wire.replies import DUPLICATE_DROPPED

OWNER, HOLDER = 0, 1

_DIGESTED = frozenset(
    {
        "RECEIVE",
        "HARECEIVE",
        "HARESTORE",
        "HADISCARD",
        "DSN",
        "FAIL",
        "REMOVE",
        "SEND",
        "SENDEXTERNAL",
        "DELIVER",
    }
    | {"DUPLICATEDELIVER", "EXPAND"}
)
"""Rows that say which content and envelope they are about."""


@dataclass(slots=True)
class Message:
    """One message, and who owns and holds it. ``steps``: (milliseconds, owner or holder, row)."""

    id: str
    at: int
    owner: str
    holder: str
    recipients: tuple[str, ...]
    steps: list[tuple[int, int, GeneratedRow]]
    left: tuple[tuple[int, str], ...] = ()  # (node, role) that still have it when the log ends
    left_in: int = 1  # the epoch in which they have it
    sender: str = "sender@example.org"
    content: str = ""  # id of the message whose content it has, if not its own
    size: int = 4096
    others: list[Message] = field(default_factory=list)  # reports on it, and what gives it back
    found: tuple[str, ...] = ()  # of those: the classes that the audit has to find

    def row(self, event: str, which: tuple[int, ...] = (), **more: Any) -> GeneratedRow:
        """A row about these recipients, all of them unless named."""
        chosen = which or tuple(range(1, len(self.recipients) + 1))
        some = "+".join(map(str, chosen)) if len(chosen) < len(self.recipients) else ""
        custom = (f";S:Recipients={some}" if some else "") + str(more.pop("custom", ""))
        addresses = ";".join(self.recipients[number - 1] for number in chosen)
        digests = self.digests() if event in _DIGESTED else ""
        told: dict[str, Any] = {"sender": self.sender, "size": self.size, **more}
        return GeneratedRow(event, self.id, addresses, len(chosen), custom=custom, digests=digests, **told)

    def digests(self, content: str = "") -> str:
        """The entries that say what it is; of another ``content``, if one is named."""
        made = hashlib.blake2b(f"{self.content or self.id}{content}".encode(), digest_size=32).hexdigest()
        return f";S:Content=xxh3-128:{made[:32]};S:Envelope=xxh3-128:{self.id.replace('-', '')}"

    def add(self, after: int, who: int, row: GeneratedRow) -> None:
        self.steps.append((self.at + after, who, row))

    # The rows of ordinary life.

    def hold(self, after: int = -3, *, host: str = "", **more: Any) -> None:
        """``host``: the holder's machine, its own unless named."""
        row = self.row("HARECEIVE", client=self.owner, server=self.holder, **more)
        row.names = self.owner, "OwnerDb"
        row.custom += f";S:Rank=1;S:Host={host or host_of(self.holder)};S:OwnerHost={host_of(self.owner)}"
        self.add(after, HOLDER, row)

    def redirect(self, after: int = 0, *, host: str = "") -> None:
        context = f"{self.holder}=250 2.6.0 {self.id} Queued mail for redundancy"
        hosts = f"S:Host={host_of(self.owner)};S:ShadowHost={host or host_of(self.holder)}"
        custom = f";S:Shadow={self.holder};{hosts}"
        row = self.row("HAREDIRECT", client=self.owner, server=self.holder, context=context, custom=custom)
        row.names = self.holder, "ShadowDb"
        self.add(after, OWNER, row)

    def receive(self, after: int = 0, custom: str = "") -> None:
        self.add(
            after,
            OWNER,
            self.row(
                "RECEIVE", client="client.example.org", server=self.owner, context="08DE", custom=custom
            ),
        )

    def deliver(
        self,
        after: int,
        which: tuple[int, ...] = (),
        who: int = OWNER,
        event: str = "DELIVER",
        **more: Any,
    ) -> None:
        source = "STOREDRIVER" if event in ("DELIVER", "DUPLICATEDELIVER") else "SMTP"
        me = (self.owner, self.holder)[who]
        hop = "mailbox.example.net" if event == "DELIVER" else "mx.example.com"
        context = f"250 2.0.0 {DUPLICATE_DROPPED if event == 'DUPLICATEDELIVER' else 'OK'}"
        row = self.row(event, which, client=me, server=hop, source=source, context=context, **more)
        row.status = ";".join(["250 2.1.5 Recipient OK"] * row.count)
        row.custom += f";S:Fork={which[0] if which else 1}"
        self.add(after, who, row)

    def fail(self, after: int, number: int = 1, *, reported: bool = True) -> None:
        """The next hop refuses that recipient, and its sender gets a report: a message of its own."""
        report = Message(
            report_id(MessageId(self.id), number, ReportKind.FAILED),
            self.at + after,
            self.owner,
            self.holder,
            (self.sender,),
            [],
            sender="<>",
        )
        row = self.row(
            "FAIL",
            (number,),
            client=self.owner,
            server="mx.example.com",
            source="QUEUE",
            context="550 5.1.1 no such user",
            reference=report.id,
            status="'[{LED=550 5.1.1 no such user};{MSG=};{FQDN=mx.example.com};{IP=};{LRT=}]'",
        )
        self.add(after, OWNER, row)
        if not reported:
            return
        made = report.row("DSN", source="DSN", server=self.owner, reference=self.id)
        report.add(0, OWNER, made)
        report.hold(2)
        report.redirect(4)
        report.deliver(30, event="SENDEXTERNAL")
        report.discard(700)
        self.others.append(report)

    def discard(self, after: int, which: tuple[int, ...] = (), who: int = HOLDER, **more: Any) -> None:
        reason = str(more.pop("reason", "ExplicitlyDiscarded"))
        me, other = (self.owner, self.holder) if who == OWNER else (self.holder, self.owner)
        if reason in ("ExplicitlyDiscarded", "DeliveredElsewhere"):
            more.setdefault("names", (other, "TellerDb"))
        row = self.row("HADISCARD", which, client=other, server=me, context=f"{reason};{self.id}", **more)
        self.add(after, who, row)

    def defer(self, after: int, custom: str = "") -> None:
        custom = f";S:Fork=1{custom}"
        self.add(
            after,
            OWNER,
            self.row(
                "DEFER", client=self.owner, server="mx.example.com", context="451 4.3.0 later", custom=custom
            ),
        )

    def take_over(self, after: int, reason: str = "heartbeat-lost") -> None:
        """The holder promotes its copy."""
        row = self.row(
            "RESUBMIT", client=self.owner, server=self.holder, context=reason, source="REDUNDANCY", epoch=2
        )
        row.custom += f";S:Owner={self.owner};S:Reason={reason}"
        row.names, row.refers_to = (self.owner, "OwnerDb"), "database"
        self.add(after, HOLDER, row)

    def yielded(self, after: int) -> None:
        """The former owner learns of that, and keeps a copy."""
        row = self.row(
            "TRANSFER", client=self.owner, server=self.holder, context="taken", source="REDUNDANCY", epoch=2
        )
        self.add(after, OWNER, row)
        held = self.row("HARECEIVE", client=self.holder, server=self.owner, context="taken", epoch=2)
        held.custom += ";S:Rank=0"
        held.names, held.refers_to = (self.holder, "OwnerDb"), ""
        self.add(after, OWNER, held)

    def damaged(self, after: int, who: int, damage: str = "content") -> None:
        row = self.row("HADAMAGE", source="REDUNDANCY", context="it is not the one of the digest")
        if damage == "rows":
            row = GeneratedRow(
                "HADAMAGE", self.id, "", 0, "REDUNDANCY", context="its rows cannot be believed", bare=True
            )
        row.custom += f";S:Damaged={damage}"
        self.add(after, who, row)

    def restored(self, after: int) -> None:
        """The holder gives its copy to the owner; both say so."""
        for who in (HOLDER, OWNER):
            row = self.row("HARESTORE", client=self.holder, server=self.owner, source="REDUNDANCY")
            self.add(after, who, row)

    def set_aside(self, after: int, who: int = OWNER) -> None:
        context = "damaged everywhere"
        self.add(after, who, self.row("SUSPEND", context=context, source="QUEUE"))

    def accepted(self) -> None:
        self.hold()
        self.redirect()
        self.receive()


def host_of(server: str) -> str:
    """The machine of a server."""
    return server.partition(".")[0]
