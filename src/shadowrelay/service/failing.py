"""How a node says that it cannot go on, and what it reads before it can begin."""

from __future__ import annotations

import os

from shadowrelay.reception.recipient_files import RecipientsInvalid
from shadowrelay.reception.recipients import RecipientsFile
from shadowrelay.settings import Settings
from shadowrelay.settings.routing import book_limits


class NodeFailed(Exception):
    """The node cannot go on; the message says why."""


def why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def cannot_listen(key: str, host: str, port: int, error: OSError) -> NodeFailed:
    """``key``: the table of the settings that says where to listen."""
    return NodeFailed(f"{key}.listen: cannot listen on {host} port {port}: {why(error)}")


def recipients_of(settings: Settings) -> RecipientsFile | None:
    """The recipients file, read; None if there is none. Raises NodeFailed."""
    if settings.recipients_file is None:
        return None
    try:
        return RecipientsFile(settings.recipients_file, book_limits(settings))
    except (OSError, RecipientsInvalid) as error:
        raise NodeFailed(f"recipients_file: {error}") from error
