"""Puts the console of a node together, and into the application that serves its API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shadowrelay.admin.access import Access
from shadowrelay.admin.answering import Answers
from shadowrelay.admin.guard import check_host
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.sessions import SessionRoutes
from shadowrelay.console.acting import JobPages
from shadowrelay.console.asking import Asking
from shadowrelay.console.lately import Lately
from shadowrelay.console.message_pages import MessagePages
from shadowrelay.console.node_pages import NodePages
from shadowrelay.console.pages import Overview, PageFrame, QueuePages
from shadowrelay.console.resubmit_pages import SafetyNetPages
from shadowrelay.console.site import Site
from shadowrelay.console.verdict import verdict_in
from shadowrelay.shown.nodes import node_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """One node's. ``audit``: the file of the last audit's verdict. ``run`` keeps the charts going."""

    node: RunningNode
    access: Access
    clock: Callable[[], datetime]
    audit: Path | None = None

    def into(self, app: Starlette) -> Starlette:
        """The application with the pages of the console."""
        app.router.routes[:0] = self.routes()
        return app

    def routes(self) -> list[Route]:
        answers = Answers(self.node, self.access)
        site = Site(node_name(self.node.name), self.clock)
        frame, asking = PageFrame(answers, site), Asking(self.node, self.clock)

        async def login(request: Request) -> Response:
            check_host(request.headers, answers.name, anybody=self.access.open)
            return frame.login(request)

        jobs = JobPages(frame, self.node, self.clock)
        return [
            *site.routes(),
            Route("/login", login, methods=["GET"]),
            *SessionRoutes(answers, frame.refuse).routes(),
            *Overview(frame, asking, lambda: verdict_in(self.audit), Lately()).routes(),
            *QueuePages(frame, asking, jobs.suspensions).routes(),
            *MessagePages(frame, asking).routes(),
            *jobs.routes(),
            *NodePages(frame, self.node, asking).routes(),
            *SafetyNetPages(frame, self.node, self.clock).routes(),
        ]

    async def run(self) -> None:
        """Sample the counters until cancelled."""
        await self.node.services.rates.run()


def console(
    node: RunningNode,
    access: Access,
    *,
    clock: Callable[[], datetime] | None = None,
    audit: Path | None = None,
) -> Console:
    """The console of a node."""
    return Console(
        node=node,
        access=access,
        clock=clock or (lambda: datetime.now(UTC)),
        audit=audit,
    )
