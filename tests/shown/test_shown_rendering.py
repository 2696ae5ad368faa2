"""Every model that is made by the names of its fields has them all: from its source, or said."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints

import pytest
from typing_extensions import is_typeddict

import shadowrelay
from shadowrelay.admin.node import HopStatus, HostStatus, LateStatus, MemberStatus, RefusalView, RunningNode
from shadowrelay.core.decisions import HopShadow, Outcome, Tombstone
from shadowrelay.core.delivery.tls_policy import TlsResult
from shadowrelay.core.hops import Handed
from shadowrelay.core.jobs import Job, JobProgress
from shadowrelay.core.members.pace import Round
from shadowrelay.core.messages import Copy, Digests, Envelope, Holder, Recipient, Status, Unread
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.reckoning import ClockReading
from shadowrelay.core.requests import Progress, Request, Selector
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.database.queue_views import HopQueue, QueueView, ShadowQueue
from shadowrelay.database.resubmission import Kept, MadeCount
from shadowrelay.database.views import Counts, MessageView
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.operator.announcing import MemberShown
from shadowrelay.operator.preview import Share, Unreached
from shadowrelay.operator.redirect import RedirectProgress
from shadowrelay.operator.resubmit import Having, Shown
from shadowrelay.shown import messages, nodes, queues, records, status, tls
from shadowrelay.shown.rendering import paths, rendered, required

SOURCES: dict[Any, tuple[type, ...]] = {
    status.StatusEntry: (RunningNode,),
    status.CountsEntry: (Counts,),
    status.LateEntry: (LateStatus,),
    status.PeerEntry: (MemberStatus,),
    status.ScrubEntry: (Round,),
    status.WholeRound: (Round,),
    status.DrainEntry: (Remains,),
    status.RedirectEntry: (RedirectProgress,),
    status.TimeEntry: (ClockReading,),
    queues.QueueEntry: (QueueView,),
    queues.HopLook: (HopStatus,),
    queues.HostEntry: (HostStatus,),
    queues.SuspensionEntry: (Suspension,),
    queues.AttemptEntry: (RecentAttempt,),
    queues.ShadowQueueEntry: (ShadowQueue,),
    queues.HopShadowQueueEntry: (HopQueue,),
    messages.MessageSummary: (Copy,),
    messages.MessageEntry: (Copy,),
    messages.RememberedMessage: (MessageView,),
    messages.RecipientEntry: (Recipient,),
    messages.KeptEntry: (Kept,),
    messages.DigestsEntry: (Digests,),
    messages.OutcomeEntry: (Outcome,),
    messages.RevokedEntry: (Tombstone,),
    messages.HandedOver: (Handed,),
    messages.EnvelopeEntry: (Envelope,),
    messages.UnreadEntry: (Unread,),
    messages.HolderEntry: (Holder,),
    messages.KeptForHop: (HopShadow,),
    messages.RefusalEntry: (RefusalView,),
    records.HavingEntry: (Having,),
    records.JobMade: (Job,),
    records.JobNode: (JobProgress,),
    records.MailCounts: (MadeCount,),
    records.SuspensionRecord: (Suspension,),
    records.SelectorEntry: (Selector,),
    records.ResubmitMade: (Request,),
    records.ResubmitProgress: (Progress,),
    records.ResubmitEntry: (Shown,),
    records.ResubmitPreview: (MadeCount,),
    records.NodeEstimate: (MadeCount,),
    records.ShareEstimate: (Share,),
    records.UnreachableEstimate: (Unreached,),
    records.SwitchEntry: (Switch,),
    records.SetEntry: (Switch,),
    records.RedundancyEntry: (EffectivePolicy,),
    records.MemberEntry: (MemberShown,),
    nodes.KnownMember: (MemberShown,),
    tls.TlsEntry: (TlsResult,),
}
"""What each model is made of. Models that are not here are made by hand, and mypy compares them."""

MODELS = [
    one
    for room in (messages, nodes, queues, records, status, tls)
    for one in vars(room).values()
    if is_typeddict(one)
]


def _calls() -> dict[str, list[set[str]]]:
    """The fields that each call of ``rendered`` says, by its model; ``*`` for those of a dictionary."""
    found: dict[str, list[set[str]]] = {}
    for file in Path(shadowrelay.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "rendered" and call.args:
                said = {one.arg or f"*{ast.unparse(one.value)}" for one in call.keywords}
                found.setdefault(ast.unparse(call.args[0]), []).append(said)
    return found


CALLS = _calls()
SPREAD = {
    "*_rebuilt(now)": {"damaged_indexes", "rebuilt"},
    "*_rebuilt(last)": {"damaged_indexes", "rebuilt"},
    "*remembered": set(messages.RememberedMessage.__annotations__),
    "*rendered(CountsEntry, seen.counts)": set(status.CountsEntry.__annotations__),
    "*rendered(MailCounts, found.count)": set(records.MailCounts.__annotations__),
}


def _has(source: type, path: str) -> bool:
    """Whether objects of that class have an attribute at that path."""
    name, _, rest = path.partition(".")
    if not hasattr(source, name) and name not in getattr(source, "__annotations__", {}):
        return False
    if not rest:
        return True
    hint = get_type_hints(source)[name]
    return any(_has(one, rest) for one in (get_args(hint) or (hint,)) if isinstance(one, type))


@pytest.mark.parametrize("model", SOURCES, ids=lambda one: one.__name__)
def test_each_field_of_a_model_is_in_its_source_or_said(model: Any) -> None:
    for source in SOURCES[model]:
        lacking = {name for name, path in paths(model).items() if not _has(source, path)} & required(model)
        for said in CALLS.get(model.__name__, [set()]):
            if any("unknown" in one for one in said):
                continue  # of damaged rows, of which all fields are said
            told = set().union(*(SPREAD.get(one, {one}) for one in said))
            assert lacking <= told, lacking - told


def test_every_model_that_is_made_by_names_has_its_source_here() -> None:
    named = {one.__name__ for one in SOURCES}
    inner = {one.__name__ for model in SOURCES for one in _inner(model)}
    assert set(CALLS) - {"hint"} <= named
    assert named <= set(CALLS) | inner, "made of nothing"
    assert named <= {one.__name__ for one in MODELS}


def _inner(hint: Any) -> list[Any]:
    """The models in the fields of a model."""
    if is_typeddict(hint):
        return [one for field in get_type_hints(hint).values() for one in _models(field)]
    return []


def _models(hint: Any) -> list[Any]:
    if is_typeddict(hint):
        return [hint]
    if get_origin(hint) in (Annotated, NotRequired, Union, UnionType, list, dict):
        return [one for part in get_args(hint) for one in _models(part)]
    return []


def test_a_value_is_told_by_the_type_of_its_field() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    held = LateStatus(longest=timedelta(seconds=1.5), waiting=2, counts={})
    assert rendered(status.LateEntry, held) == {"longest": 1.5, "waiting": 2}
    told = rendered(
        queues.AttemptEntry, held, at=at, message="m", host="", outcome=Status.READY, reply="", seconds=1
    )
    assert told == {
        "at": "2026-01-02T00:00:00.000Z",
        "message": "m",
        "host": "",
        "outcome": Status.READY.value,
        "reply": "",
        "seconds": 1,
    }
    assert type(told["outcome"]) is str


def test_what_no_source_has_and_no_field_is_fails_at_once() -> None:
    with pytest.raises(AttributeError, match="waiting"):
        rendered(status.LateEntry, object(), longest=1.0)
    with pytest.raises(TypeError, match="more"):
        rendered(status.LateEntry, object(), longest=1.0, waiting=1, more=2)
