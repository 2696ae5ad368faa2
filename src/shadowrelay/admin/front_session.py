"""What the front of a node tells a worker about who asks: the sessions of browsers are the front's.

The worker believes it on the socket of the front alone, which nobody but the node's own user can reach.
"""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from shadowrelay.admin.access import Session
from shadowrelay.core.operating import Scope

HEADER = b"x-shadowrelay-session"
"""The header of a request with a session. The front takes it out of what clients send."""

_BEHIND = "shadowrelay.behind_front"


def behind_front(app: ASGIApp) -> ASGIApp:
    """The application of a worker on the socket of its front."""

    async def answered(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await app({**scope, _BEHIND: True}, receive, send)

    return answered


def handing(session: Session) -> bytes:
    """The value of the header."""
    told = {
        "operator": session.operator,
        "scope": session.scope.value,
        "csrf": session.csrf,
        "shared": session.shared,
        "cookie": session.cookie,
    }
    return json.dumps(told, separators=(",", ":")).encode("ascii")


def handed_session(request: Request) -> Session | None:
    """The session that the front names, if the request came through the front and has one."""
    if not request.scope.get(_BEHIND) or (text := request.headers.get(HEADER.decode())) is None:
        return None
    told = json.loads(text)
    return Session(
        operator=told["operator"],
        scope=Scope(told["scope"]),
        csrf=told["csrf"],
        shared=told["shared"],
        cookie=told["cookie"],
    )
