"""Planted bugs: each takes one rule out of the production code, and the simulation has to notice.

Each names the function that it edits. One that does not apply any more fails loudly, so that a rule which
moves takes its fault along.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from shadowrelay import node_clock
from shadowrelay.core import identifiers, machines, reckoning, requests, shared_records
from shadowrelay.core.delivery import journal, settling
from shadowrelay.core.events import announcements, reports
from shadowrelay.core.members import (
    answers,
    claims,
    concluding,
    conversation,
    damage,
    questions,
    second_opinion,
)
from shadowrelay.core.ownership import chores, heartbeat, transfer
from shadowrelay.core.reception import arrivals, holding, redundancy, shadow_servers
from shadowrelay.core.safety_net import expiry, resubmission
from shadowrelay.database import ledger
from shadowrelay.delivery.script import deliver
from shadowrelay.members import repair
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.link import unreachable
from shadowrelay.reception import two_copies
from shadowrelay.safety_net import making
from tests.proof.planting import Edit, Fault

from . import memory_ledger, node, peers

Within = tuple[Callable[..., Any], str, str]
"""A function, text to take out of it, text to put in."""


class Breaks(StrEnum):
    """What the simulation notices. HISTORY: that something else happens; no promise is broken by that."""

    PROMISE = "the promise"
    HISTORY = "another history than recorded"


_SCENARIO = {
    Breaks.PROMISE: "test_the_scenario_keeps_the_promise",
    Breaks.HISTORY: "test_the_scenario_does_what_was_recorded",
}


def Mutant(
    name: str,
    edits: tuple[Within, ...],
    seed: int | None = None,
    scenario: str = "",
    breaks: Breaks = Breaks.PROMISE,
    *,
    hosts: bool = False,
) -> Fault:
    """Edits of functions: text to take out, text to put in. A scenario shows it, or else a seed does.
    ``hosts``: the seed is one of nodes with several workers.
    """
    of_seed = HOSTS if hosts else SEED
    test = f"test_scenarios.py::{_SCENARIO[breaks]}[{scenario}]" if scenario else f"{of_seed}[{seed}]"
    return Fault(
        name=name,
        rule=f"{breaks}, in the simulation",
        test=f"simulation/{test}",
        beside=tuple(edit_of(*edit) for edit in edits),
    )


SEED = "test_seeds.py::test_a_seed_that_shows_a_planted_fault_is_good_without_it"
HOSTS = "test_hosts.py::test_a_seed_with_workers_that_shows_a_planted_fault_is_good_without_it"


def edit_of(function: Callable[..., Any], old: str, new: str) -> Edit:
    top, _, rest = function.__module__.removeprefix("tests.").partition(".")
    file = f"{'tests' if top == 'simulation' else 'src'}/{top}/{rest.replace('.', '/')}.py"
    return Edit(file, old, new, function.__qualname__)


MUTANTS = (
    Mutant(
        "mail ends by the wall clock",
        (
            (
                node_clock.NodeClock.endings,
                "return Endings(found.at(reading.boot), found.doubtful, bool(self._doubts))",
                "return Endings(reading.wall)",
            ),
        ),
        seed=7,
    ),
    Mutant(
        "retries are planned by the wall clock",
        (
            (
                node_clock.NodeClock.__call__,
                "return self._reckoning.at(self._boot())",
                "return self.read().wall",
            ),
        ),
        seed=25,
    ),
    Mutant(
        "the wall clock of an owner decides how old its holder's copy is",
        (
            (
                peers.Peers._offer,
                "age=max(timedelta(0), node.certain(step.received_at) - step.received_at)",
                "age=max(timedelta(0), node.machine.read().wall - step.received_at)",
            ),
        ),
        seed=25,
    ),
    Mutant(
        "time that may not have passed ages what is kept",
        ((reckoning.Endings.before, "since_when(self.spans, age, self.now)", "self.now - age"),),
        seed=295,
    ),
    Mutant(
        "a node that differs from the members trusts its clock",
        ((reckoning.opinion, "return Opinion.AGREE if", "return Opinion.AGREE if differences or"),),
        seed=16,
    ),
    Mutant(
        "each worker of a machine has a voice about the time",
        ((Boundary.voice_of, "return min(there) if host != self.own.host else None", "return name"),),
        seed=556,
    ),
    Mutant(
        "250 before the shadow's 250",
        (
            (
                peers.Peers._offer,
                "self.exchange(step.to, session.number, lines, timeout, done)",
                "self.exchange(step.to, session.number, lines, timeout, lambda *_: None)\n"
                "    mark = session.theirs.lineage.mark\n"
                "    ended(OfferAttempt(step.to, Leg.ACKNOWLEDGED, step.rank, '250', database, mark))",
            ),
        ),
        seed=186,
    ),
    Mutant(
        "the shadow acknowledges before its commit",
        (
            (
                peers.Peers._serve_offer,
                "    self._transact(work, then)",
                "    held = []\n"
                "    ready, _ = node.transact(lambda b: held.append(work(b)), lambda _: None)\n"
                "    then(held[0])",
            ),
        ),
        scenario="holder_killed_after_its_answer",
    ),
    Mutant(
        "speak before persist",
        (
            (
                node.Node.transact,
                "self.waiting.append((then, result))",
                "self.after(0.0, then, result)",
            ),
        ),
        seed=4,
    ),
    Mutant(
        "an acknowledgement that never came counts",
        (
            (
                redundancy.accept,
                "if not redundant and policy.shadow_redundancy_enabled and not may_be_exposed:",
                "if not holders and not may_be_exposed:",
            ),
        ),
        seed=48,
    ),
    Mutant(
        "discard before the next hop's 250",
        (
            (
                deliver,
                "sent = await SendOn(next_hop, copy, recipients)",
                "from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop\n"
                "    early = tuple(AttemptResult(r.number, Ending.ACCEPTED, '250') for r in recipients)\n"
                "    await Transact(lambda ledger: ledger.apply("
                "settle(ledger, copy.id, early, (), Hop('early', False, False), clock())))\n"
                "    sent = await SendOn(next_hop, copy, recipients)",
            ),
        ),
        seed=0,
    ),
    Mutant("the epoch forgotten", ((transfer.promote, "epoch=copy.epoch + 1", "epoch=copy.epoch"),), seed=0),
    Mutant(
        "delivery before asking on return",
        (
            (concluding._complete, "return reachable - {question.taken_from} <= by", "return True"),
            (
                concluding.conclude,
                "missing = {holder.name for holder in copy.holders} - said.by",
                "missing = set()",
            ),
        ),
        scenario="frozen_owner",
    ),
    Mutant(
        "outbox outside the transaction",
        ((memory_ledger.MemoryLedger.rollback, "    self.tracked.clear()", "    pass"),),
        seed=129,
    ),
    Mutant(
        "promotion without the lineage check",
        ((heartbeat.meet, "if former is None or continuity is not Continuity.BROKEN:", "if True:"),),
        scenario="owner_loses_its_database",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a half delivered message is wholly discarded",
        ((announcements.delivered, "if len(numbers) == len(copy.recipients):", "if True:"),),
        seed=0,
    ),
    Mutant(
        "a discard is told to the wrong holder",
        (
            (
                transfer.with_better_holder,
                "gone = (Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(other.rank)),)\n"
                "            told += addressed([other.database_id], gone, now)",
                "gone = (Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(holder.rank)),)\n"
                "            told += addressed([holder.database_id], gone, now)",
            ),
        ),
        scenario="holder_dies",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "unknown never promotes",
        (
            (
                questions._unknown,
                "    return intend(copy, Reason.OWNER_FORGOT, now)\n    holder",
                "    return Decision(None)\n    holder",
            ),
        ),
        scenario="page_without_the_message",
    ),
    Mutant(
        "marks of acknowledgements are not remembered",  # counterexample 2
        (
            (
                redundancy._heard,
                "return heard(ledger, attempt.name, attempt.mark).writes if attempt.mark else ()",
                "return ()",
            ),
        ),
        scenario="counterexample_02",
    ),
    Mutant(
        "an acknowledgement is not checked when the row is written",  # counterexample 3
        (
            (
                redundancy.counts,
                "return vouches(member, attempt.database_id, attempt.mark)",
                "return True",
            ),
        ),
        scenario="counterexample_03",
    ),
    Mutant(
        "a holder with a new database still counts",  # counterexample 4
        (
            (
                chores._without_its_copy,
                "return holder if running and holder.database_id == running.database_id else None",
                "return holder",
            ),
        ),
        scenario="holder_loses_its_database",
    ),
    Mutant(
        "a holder that was rolled back still counts",
        ((chores._without_its_copy, "HolderState.UNCERTAIN)", "HolderState.HOLDING)"),),
        scenario="counterexample_02",
    ),
    Mutant(
        "a row before the reply is decided",  # counterexample 5
        (
            (
                two_copies.make_redundant,
                "attempts: list[OfferAttempt] = []",
                "from dataclasses import replace\n"
                "    lax = replace(policy, reject_message_on_shadow_failure=False)\n"
                "    await Transact(lambda ledger: ledger.apply("
                "accept(ledger, arrival, content, (), lax, clock(), last_resort=True)))\n"
                "    accept_ = accept\n"
                "    attempts: list[OfferAttempt] = []",
            ),
        ),
        seed=1,
    ),
    Mutant(
        "revoke leaves no tombstone",  # counterexample 6
        ((holding.revoke, "return Decision(confirmed, (tombstone,))", "return Decision(confirmed)"),),
        scenario="counterexample_06",
    ),
    Mutant(
        "the tombstone is not looked at",
        (
            (
                holding.hold,
                "if tombstone and tombstone.refuses(",
                "if False and tombstone.refuses(",
            ),
        ),
        scenario="counterexample_06",
    ),
    Mutant(
        "451 without a revoke",
        ((two_copies.take_back, "for attempt in uncertain(tuple(attempts)):", "for attempt in ():"),),
        scenario="refused_then_owner_lost",
    ),
    Mutant(
        "451 though the revoke was not confirmed",
        ((two_copies.take_back, "return Answer.HANG_UP", "continue"),),
        scenario="revoke_not_confirmed",
    ),
    Mutant(
        "events go to certain holders only",  # counterexample 7
        (
            (
                announcements.listeners,
                "for holder in copy.holders]",
                "for holder in copy.holders if holder.mark is not None]",
            ),
        ),
        scenario="acknowledgement_lost_then_delivered",
    ),
    Mutant(
        "Safety Net does not answer",  # counterexample 8
        (
            (
                answers._answer,
                "return Decision(known or (Verdict(copy.id, copy.epoch, VerdictKind.PENDING),))",
                "return Decision((Verdict(copy.id, epoch, VerdictKind.UNKNOWN),))",
            ),
        ),
        scenario="counterexample_08",
    ),
    Mutant(
        "delivered counts at the same epoch only",  # counterexample 9
        (
            (
                questions._learn,
                "    case VerdictKind.DELIVERED:\n",
                "    case VerdictKind.DELIVERED if verdict.epoch != copy.epoch:\n"
                "            return Decision(None)\n"
                "        case VerdictKind.DELIVERED:\n",
            ),
        ),
        scenario="counterexample_09",
    ),
    Mutant(
        "AFTER without incarnation",  # counterexample 11
        (
            (heartbeat.meet, "replace(met, applied=None, replaced=gone_for_good, broken_at=now)", "met"),
            (
                memory_ledger.MemoryLedger._last_event_of,
                "    for index,",
                "    return self.state.last_event\n    for index,",
            ),
            (
                ledger.SqlLedger._last_event_of,
                "    for index,",
                "    return self._last(SQL['last_event'])\n    for index,",
            ),
        ),
        scenario="counterexample_11",
    ),
    Mutant(
        "what was taken over is not asked about on a new contact",  # counterexample 12
        ((chores._former_owner_is_back, "ledger.apply(ask_about(copy, chore.at))", "pass"),),
        scenario="counterexample_12",
    ),
    Mutant(
        "ids of reports are drawn",  # counterexample 13
        (
            (
                reports.report_id,
                'return derived_id("report",',
                'import itertools; report_id.__dict__.setdefault("n", itertools.count())\n'
                '    return derived_id(f"{next(report_id.n)}report",',
            ),
        ),
        seed=213,
    ),
    Mutant(
        "the original is discarded before its report is safe",
        (
            (
                settling.settle,
                "awaited = {r.about: r.id for r in made.values()",
                "awaited = {r.about: r.id for r in ()",
            ),
        ),
        seed=159,
    ),
    Mutant(
        "the original is discarded before its journal copy is safe",
        (
            (
                journal.journaled,
                "return queued.but(None if already_safe(ledger, wanted.id) else wanted.id)",
                "return queued.but(None)",
            ),
        ),
        seed=2248,
    ),
    Mutant(
        "each settlement makes a journal copy",
        (
            (
                journal.journaled,
                "wanted is None or waiting or any(_journaled(one) for one in original.recipients)",
                "wanted is None or waiting",
            ),
        ),
        seed=1433,
    ),
    Mutant(
        "exposure is not repaired",
        (
            (
                repair.copy_again,
                "while turn := whom([*refused, *attempts]):",
                "while turn := None:",
            ),
        ),
        seed=8,
    ),
    Mutant(
        "an owner that was cut off does not ask",
        ((heartbeat._cut_off, "return asked_about(copy, now)", "return copy"),),
        scenario="frozen_owner",
    ),
    Mutant(
        "a content that was held up is begun without a look",
        ((node.Node._send_on, "if hangs and not self._still_ours(step):", "if False:"),),
        scenario="cut_off_owner_with_an_attempt_under_way",
    ),
    Mutant(
        "a promoted copy begins again with all recipients",
        (
            (
                transfer.promote,
                "        copy,\n        epoch",
                "        copy.with_recipients(\n"
                "            replace(r, status=type(r.status).READY) for r in copy.recipients\n"
                "        ),\n"
                "        epoch",
            ),
        ),
        seed=31,
    ),
    Mutant(
        "the returning owner does not yield",
        (
            (
                questions._taken,
                "if verdict.epoch < copy.epoch or not owner_database:",
                "if True:",
            ),
            (
                answers._answer_as_owner,
                "if rank is not None and outranks(",
                "if False and outranks(",
            ),
        ),
        scenario="owner_away_and_back",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a snapshot of this very incarnation looks unbroken",
        (
            (
                identifiers.Lineage.continuity,
                "return Continuity.UNBROKEN if mark.sequence <= end else Continuity.BROKEN",
                "return Continuity.UNBROKEN",
            ),
        ),
        scenario="owner_is_an_old_copy_of_itself",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a late greeting passes for a rolled back database",
        ((heartbeat.continued, "if former and found.overtaken_by(former)", "if False and former"),),
        scenario="late_greeting",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "two owners of one message never ask",
        (
            (holding.hold, "ask_about(known, now).writes", "()"),
            (redundancy.repaired, "if copy and elsewhere", "if False"),
        ),
        scenario="two_nodes_make_the_same_report",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "an owner tells itself of what it delivered",
        ((announcements.listeners, "if copy.role is Role.SHADOW and", "if not copy.owned and"),),
        seed=0,
    ),
    Mutant(
        "every holder promotes",  # counterexample 10
        (
            (
                claims.judge,
                "Verdict(copy.id, copy.epoch, kind, str(_order(copy)))",
                "Verdict(copy.id, epoch, VerdictKind.UNKNOWN)",
            ),
        ),
        scenario="counterexample_10",
    ),
    Mutant(
        "no second opinion",
        ((claims.vouches, "if sighting.owner not in sighted or", "if True or"),),
        scenario="partition_in_a_boundary_of_three",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a node that is cut off promotes by time",
        ((unreachable, "if others.none_of(opinions) and", "if False and"),),
        scenario="partition_in_a_boundary_of_three",
    ),
    Mutant(
        "what arrives is answered as what was left behind",
        (
            (conversation.asked, "if question.message_id in in_flight:", "if False:"),
            (answers._answer_of_arrival, "if arrivals.under_way(arrived) or", "if"),
        ),
        scenario="holder_asks_while_the_reply_is_open",
    ),
    Mutant(
        "what was arriving is forgotten at once",
        (
            (
                memory_ledger.MemoryLedger.open,
                "plain.commit()",
                "plain.commit()\n    state.arriving.clear()",
            ),
        ),
        scenario="killed_between_the_commits",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "what was arriving and refused is accepted",
        (
            (
                arrivals.concluded,
                "if arrived.holders and all(holder.state is HolderState.LOST for holder in arrived.holders):",
                "if False:",
            ),
        ),
        scenario="arrived_and_refused_and_put_back",
    ),
    Mutant(
        "the first member that has no copy decides about what was arriving",
        (
            (
                arrivals.learnt,
                "            return Decision(None, (SaveCopy(arrived, none),))",
                "            return forgotten(none, Policy(), now)",
            ),
            (answers._answer_of_arrival, " and epoch != arrived.epoch", ""),
        ),
        seed=17539,
    ),
    Mutant(
        "a holder that was put back proves that nobody had a 250",
        ((arrivals.learnt, "if offered_to and _same_opening(offered_to, speaker):", "if offered_to:"),),
        scenario="arrived_and_holder_put_back",
    ),
    Mutant(
        "what its holder says was delivered is not believed of what was arriving",
        ((arrivals.learnt, "case VerdictKind.TAKEN | VerdictKind.DELIVERED:", "case VerdictKind.TAKEN:"),),
        scenario="arrived_and_settled_in_two_ways",
    ),
    Mutant(
        "a 250 before both copies are durable",
        (
            (
                two_copies.make_redundant,
                "if arrived and counts(both.member, both.attempt):",
                "if counts(both.member, both.attempt):",
            ),
        ),
        seed=549,
    ),
    Mutant(
        "a 250 whatever the holder said",
        ((two_copies.make_redundant, "if arrived and counts(both.member, both.attempt):", "if arrived:"),),
        seed=12,
    ),
    Mutant(
        "what a chore has left to do is forgotten",
        (
            (
                chores.begin,
                "if left := _part_of(ledger, chore):",
                "_part_of(ledger, chore)\n    if left := None:",
            ),
        ),
        seed=348,
    ),
    Mutant(
        "a node that is opening sends",
        ((chores.held_back, "return any(", "return False and any("),),
        seed=106,
    ),
    Mutant(
        "a node that is opening answers questions",
        ((conversation.asked, "closed = closed or chores.closed(ledger)", "closed = False"),),
        scenario="old_database_and_a_long_queue",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a copy is taken while the database is opened",
        ((peers.Peers._serve_offer, "if chores.refuses(ledger, offer.message_id):", "if False:"),),
        scenario="opening_of_a_long_queue",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a 451 before what arrived is forgotten",
        ((redundancy.accept, "[DropCopy(arrived)] if arrived and last_resort else []", "[]"),),
        seed=20,
    ),
    Mutant(
        "the only candidate left is skipped",
        (
            (
                shadow_servers.next_turn,
                "name = min(left, key=lambda name: asked[name], default=None)",
                "name = None",
            ),
        ),
        scenario="same_member_asked_again",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a session that broke counts as an attempt",
        (
            (shadow_servers.healthy_turn, "if attempts and _was_replaced(attempts):", "if False:"),
            (shadow_servers._counted, "counted.subtract(broken)", "pass"),
        ),
        scenario="session_replaced_at_once",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "of several offers to one member the first counts",
        (
            (
                redundancy.accept,
                "holder for attempt in attempts if",
                "holder for attempt in reversed(attempts) if",
            ),
        ),
        scenario="same_member_asked_again",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "of several offers to one member the first is revoked",
        (
            (
                redundancy.uncertain,
                "for attempt in attempts if",
                "for attempt in reversed(attempts) if",
            ),
        ),
        scenario="several_offers_and_one_revoke",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a damaged copy counts",
        (
            (answers._answer_as_owner, "if damaged:", "if False:"),
            (questions._damaged, "if copy.owned and holder and holder.state in _COPIES:", "if False:"),
        ),
        scenario="damaged_copy_is_made_again",
    ),
    Mutant(
        "a damaged copy is not replaced by the good one that is offered",
        ((holding.hold, "content if better else None", "None"),),
        scenario="damaged_copy_is_made_again",
    ),
    Mutant(
        "of a report that two members made, a holder keeps the one that its owner does not have",
        ((holding.hold, " or _another(known, offer.digests)", ""),),
        seed=24702,
    ),
    Mutant(
        "what members answered about a damage counts for the next one",
        ((node.Node._mend, "del self.answered[message_id]", "pass"),),
        seed=16105,
    ),
    Mutant(
        "a message is set aside before every member was asked",
        ((node.Node._seek, "if frozenset(self.boundary.watches) <= answered:", "if True:"),),
        scenario="damaged_content_is_fetched",
    ),
    Mutant(
        "a good copy is not given",
        ((damage.answer, "give = copy.id", "give = None"),),
        scenario="damaged_content_is_fetched",
    ),
    Mutant(
        "of damaged rows nothing is known",
        ((answers.without_copy, "if rows := ledger.damaged(message_id):", "if rows := None:"),),
        scenario="damaged_rows_are_fetched",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a copy is promoted unread",
        ((concluding.conclude, "if copy.pending and not said.sound:", "if False:"),),
        scenario="damaged_copy_is_not_promoted",
    ),
    Mutant(
        "a damaged copy is promoted",
        (
            (
                concluding.conclude,
                "if copy.pending and copy.damaged:\n        return Conclusion.OPEN\n",
                "if copy.pending and copy.damaged:\n        said = replace(said, sound=True)\n",
            ),
            (transfer.promote, "or copy.damaged", ""),
        ),
        scenario="damaged_copy_is_not_promoted",
    ),
    Mutant(
        "unknown is taken for refused",
        ((questions._unknown, "if speaker.version == 1 and same:", "if same:"),),
        scenario="page_without_the_message",
    ),
    Mutant(
        "what was refused is not on record",
        ((redundancy.accept, "if last_resort and uncertain(attempts):", "if False:"),),
        scenario="refused_and_holder_put_back",
    ),
    Mutant(
        "what was away for long is promoted though its owner does not know it",
        (
            (
                questions._unknown,
                "if long_away is not None and copy.confirm_since == long_away:",
                "if False:",
            ),
        ),
        scenario="holder_away_for_long",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "the report of another maker is taken for ours",
        ((transfer.yields, "if made_by_two else copy.damage", "if False else copy.damage"),),
        scenario="two_nodes_make_the_same_report",
    ),
    Mutant(
        "a message is restored as if nothing had been sent",
        ((holding.restore, "for number, status in rows.settled", "for number, status in ()"),),
        seed=1333,
    ),
    Mutant(
        "nobody asks again who else has a message",
        ((questions.shared_with, "return copy.owned and any(", "return False and any("),),
        scenario="page_of_a_holder",
    ),
    Mutant(
        "a holder asks once, and never again",
        (
            (
                questions.shared_with,
                "return copy.owner == member and copy.pending is None",
                "return False",
            ),
        ),
        scenario="page_of_an_owner",
    ),
    Mutant(
        "a member beside us shows that we are not cut off",
        ((second_opinion.others, " if place.host != own.host", ""),),
        scenario="machine_cut_off_with_two_members",
    ),
    Mutant(
        "a sibling shows that a worker's host is not cut off",
        ((second_opinion.others, " if place.host != own.host", ""),),
        seed=90,
        hosts=True,
    ),
    Mutant(
        "two hosts of four workers wait for the word of a third",
        ((second_opinion.others, "any(place.host not in machines for place in asked)", "bool(asked)"),),
        scenario="host_lost_with_its_workers",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "two machines wait for the word of a third",
        ((second_opinion.others, "any(place.host not in machines for place in asked)", "bool(asked)"),),
        scenario="two_members_on_one_machine",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "a copy beside its owner counts",
        ((machines.holding, "HolderState.BESIDE if own and own == other else ", ""),),
        seed=56,
    ),
    Mutant(
        "a copy beside its owner is kept though there is one elsewhere",
        (
            (redundancy._recorded, "HolderState.UNCERTAIN, HolderState.BESIDE}", "HolderState.UNCERTAIN}"),
            (answers._answer_as_owner, "{HolderState.BESIDE}", "set()"),
        ),
        scenario="two_members_on_one_machine",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "the id of a resubmitted message does not depend on its request",
        ((reports.resubmitted_id, 'derived_id("resubmit", request, ', 'derived_id("resubmit", '),),
        scenario="given_back_by_its_owner",
    ),
    Mutant(
        "a holder answers for an owner that is silent for a moment",
        ((resubmission.lost, "if owner in contacts.silent else None", ""),),
        scenario="given_back_after_the_interval",
    ),
    Mutant(
        "a holder answers for a silent owner that a third member sees",
        ((making.asked_elsewhere, " or answered.seen is not None", ""),),
        seed=25067,
    ),
    Mutant(
        "a holder makes what a silent owner said to have made",
        ((resubmission.made, "if left_to_it and", "if False and"),),
        seed=26500,
    ),
    Mutant(
        "mail expires inside the window of a request",
        ((expiry.expire, "if any(window.covers(", "if False and any(window.covers("),),
        scenario="window_of_a_request_does_not_expire",
    ),
    Mutant(
        "recipients outside are given a message back",
        ((resubmission.inside, " if one.status is Status.DELIVERED", ""),),
        scenario="given_back_by_its_owner",
    ),
    Mutant(
        "what was given back is given back again",
        ((resubmission.refusal, "if copy.request is not None:", "if False:"),),
        scenario="given_back_by_its_owner",
    ),
    Mutant(
        "a holder does not know that it holds what was given back",
        ((holding.hold, "            request=offer.request,\n", ""),),
        seed=19,
    ),
    Mutant(
        "a holder does not answer for a database that is gone",
        (
            (
                resubmission.lost_of,
                "if copy.owner_database != member.lineage.database_id:\n        return True",
                "if copy.owner_database != member.lineage.database_id:\n        return False",
            ),
        ),
        scenario="given_back_by_a_holder",
    ),
    Mutant(
        "what a holder passed over is not looked at when its owner loses it",
        ((heartbeat.meet, "ForgetTold(name), *again)", "ForgetTold(name))"),),
        scenario="given_back_after_two_losses",
    ),
    Mutant(
        "a node that lost its disk begins to count changes anew",
        ((shared_records.next_revision, "max(known + 1, int(now.timestamp() * 1000))", "known + 1"),),
        seed=17597,
    ),
    Mutant(
        "of two revisions of a request the older counts",
        ((requests.newest, "return max(one", "return min(one"),),
        scenario="request_paused_over_a_restart",
        breaks=Breaks.HISTORY,
    ),
    Mutant(
        "nobody is asked before a message is given back",
        ((making.asked_elsewhere, "for member in sorted(members) if by_id else ():", "for member in ():"),),
        scenario="given_back_after_the_interval",
        breaks=Breaks.HISTORY,
    ),
)
