"""The bodies that the API takes, as models of its description; ``body.py`` reads them."""

from __future__ import annotations

from typing import Any, Literal, Required

from typing_extensions import TypedDict

from shadowrelay.core.jobs import Verb


class NothingAsked(TypedDict):
    """An empty object, or no body."""


class SelectorAsked(TypedDict, total=False):
    """What a resubmit request is about."""

    since: Required[str]
    until: Required[str]
    all: Any
    to: str | list[str]
    sender: str | None
    recipient: str | None
    message_id: str | None
    network_message_id: str | None


class FilterAsked(TypedDict, total=False):
    """The conditions of a job: ages in seconds, sizes in octets."""

    ids: list[str]
    queue: str | None
    sender: str | None
    recipient: str | None
    domain: str | None
    subject: str | None
    error: str | None
    suspended: bool | None
    older: float | None
    younger: float | None
    larger: int | None
    smaller: int | None


class OperatorAsked(TypedDict, total=False):
    """``operator`` counts where a token is shared."""

    operator: str | None


class ReasonAsked(OperatorAsked):
    """Why it is done: members and logs show it."""

    reason: Required[str]


class RedundancyAsked(ReasonAsked):
    """The switch of shadow redundancy."""

    value: Required[Literal["on", "off"]]


class SettingAsked(ReasonAsked):
    """``value``: written as in the settings file; null: each settings file counts again."""

    key: Required[str]
    value: Required[str | int | bool | None]


class ReloadAsked(OperatorAsked, total=False):
    """``dry_run``: only say what would change. ``cluster``: of every node."""

    dry_run: bool
    cluster: bool


class AnnounceAsked(TypedDict):
    """What the authority signed."""

    signed: str


class ResubmitPreviewAsked(OperatorAsked, total=False):
    """``gone``: members whose mail others make, because they are gone for good."""

    selector: Required[SelectorAsked]
    gone: list[str]


class ResubmitAsked(ResubmitPreviewAsked):
    """A resubmit request."""

    reason: Required[str]


class GoneAsked(OperatorAsked):
    """A member that is away for a request."""

    member: Required[str]


class JobPreviewAsked(OperatorAsked):
    """What a job would be about."""

    filter: Required[FilterAsked]


class JobAsked(JobPreviewAsked, total=False):
    """A job."""

    verb: Required[Verb]
    reason: Required[str]
    until: str | None
    with_report: bool


class SuspensionAsked(ReasonAsked, total=False):
    """A queue to suspend or to resume."""

    queue: Required[str]
    act: Required[Literal["suspend", "resume"]]
    until: str | None


class LoginAsked(TypedDict, total=False):
    """A token that becomes a session."""

    token: Required[str]
    operator: str | None
    next: str | None


class LogoutAsked(TypedDict, total=False):
    """``csrf``: that of the session; or the header X-CSRF-Token."""

    csrf: str | None
