"""Keeps the policies of MTA-STS until they end: what a domain said counts after a restart, too."""

from __future__ import annotations

from datetime import datetime, timedelta

from shadowrelay.core.delivery.mta_sts import WANTED_LATELY, StsMode, StsPolicy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.values import dataclass
from shadowrelay.database import sums
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load
from shadowrelay.database.records import micros, moment
from shadowrelay.database.sums import SqlRow

SQL = load("sts_policies.sql")

MOST = 10_000
"""Policies that are kept."""

NOTED = timedelta(hours=1)
"""That mail asks for a policy is written down once in so long."""


@dataclass(frozen=True, slots=True)
class KeptPolicy:
    """A policy in the database. ``used_at``: when mail last asked for it."""

    domain: str
    policy: StsPolicy
    used_at: datetime


def kept(ledger: SqlLedger, domain: str) -> KeptPolicy | None:
    """The policy of a domain, ended or not. A damaged row is none: the policy is fetched again."""
    row = ledger.connection.execute(SQL["policy"], (domain,)).fetchone()
    return sums.sound(_kept_of, row) if row else None


def use(ledger: SqlLedger, domain: str, now: datetime) -> StsPolicy | None:
    """The policy of a domain to which there is mail."""
    found = kept(ledger, domain)
    if found is not None and now - found.used_at >= NOTED:
        _put(ledger, domain, found.policy, now)
    return found.policy if found else None


def keep(ledger: SqlLedger, domain: str, policy: StsPolicy, used_at: datetime, ends: Endings) -> bool:
    """Keep a policy in place of the one before. False: all places have policies that must stay.

    What holds back no mail makes room first, then what no mail asked for lately. No other one does: who makes
    a node send to many domains takes no policy from anybody.
    """
    _put(ledger, domain, policy, used_at)
    run = ledger.connection.execute
    if (more := run(SQL["count_policies"]).fetchone()[0] - MOST) <= 0:
        return True
    gone = [one for (one,) in run(SQL["make_room"], (micros(ends.before(WANTED_LATELY)), more)).fetchall()]
    if len(gone) < more:
        gone.append(domain)
    for one in gone:
        run(SQL["drop_policy"], (one,))
    return domain not in gone


def looked_through(ledger: SqlLedger, after: str, most: int, ends: Endings) -> tuple[str, list[KeptPolicy]]:
    """Policies behind a domain, and the last domain that was looked at; '' at the end. Those that have ended
    are forgotten.
    """
    rows = ledger.connection.execute(SQL["policies"], (after, most)).fetchall()
    found = [one for row in rows if (one := sums.sound(_kept_of, row))]
    for one in found:
        if one.policy.ended(ends):
            ledger.connection.execute(SQL["drop_policy"], (one.domain,))
    last = str(rows[-1][0]) if len(rows) == most else ""
    return last, [one for one in found if not one.policy.ended(ends)]


def _put(ledger: SqlLedger, domain: str, policy: StsPolicy, used_at: datetime) -> None:
    ledger.connection.execute(
        SQL["put_policy"],
        (
            domain,
            policy.mode.value,
            "\n".join(policy.mx),
            int(policy.max_age.total_seconds()),
            policy.identifier,
            micros(policy.fetched_at),
            micros(used_at),
        ),
    )


def _kept_of(row: SqlRow) -> KeptPolicy:
    domain, mode, mx, max_age, identifier, fetched_at, used_at = row
    policy = StsPolicy(
        StsMode(mode),
        tuple(mx.split("\n")) if mx else (),
        timedelta(seconds=max_age),
        identifier,
        moment(fetched_at),
    )
    return KeptPolicy(domain, policy, moment(used_at))
