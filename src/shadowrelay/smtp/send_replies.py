"""What a next hop's reply, or its silence, means for a recipient."""

from __future__ import annotations

from shadowrelay.smtp.send_hop import Outcome, RecipientResult
from shadowrelay.wire.replies import Reply

_LONGEST_TEXT = 600
_LOG_IN = frozenset({530, 534, 535, 538})
"""These ask for a login, for TLS, or for another mechanism (RFC 4954 section 6, RFC 3207 section 4): they are
said of us, and not of the message."""


def one_line(reply: Reply) -> str:
    """The reply as it is kept: one printable line of at most 600 characters."""
    return str(reply)[:_LONGEST_TEXT]


def refused(number: int, reply: Reply) -> RecipientResult:
    """A reply other than 2yz before the content: 5yz is for good, anything else for now.

    A code out of place (3yz to RCPT, say) is the hop's error, and one that asks for a login is our own:
    permanent only by explicit choice.
    """
    for_good = reply.permanent and reply.code not in _LOG_IN
    outcome = Outcome.REJECTED if for_good else Outcome.DEFERRED
    return RecipientResult(number, outcome, one_line(reply))


def final(number: int, reply: Reply) -> RecipientResult:
    """The reply to the final dot. One that is out of place (3yz) leaves the recipient in doubt."""
    if reply.positive:
        outcome = Outcome.DUPLICATE if reply.duplicate else Outcome.ACCEPTED
        return RecipientResult(number, outcome, one_line(reply))
    if reply.transient or reply.permanent:
        return refused(number, reply)
    return RecipientResult(number, Outcome.IN_DOUBT, one_line(reply))


def lost(number: int, step: str, said: str = "") -> RecipientResult:
    """The session ended before the final dot was written: not taken, to be tried again. ``said``: the
    server's own text, if it was no reply.
    """
    text = _with(f"451 4.4.2 Session lost at {step}", said)
    return RecipientResult(number, Outcome.DEFERRED, text, remote=False)


def in_doubt(number: int, said: str = "") -> RecipientResult:
    """The session ended between the final dot and its reply."""
    text = _with("451 4.4.2 Session lost after the final dot", said)
    return RecipientResult(number, Outcome.IN_DOUBT, text, remote=False)


def _with(text: str, said: str) -> str:
    return f"{text}: {said}"[:_LONGEST_TEXT] if said else text
