"""Answers for a mailbox service over HTTP: metrics and health (docs/reference/mailbox.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shadowmailbox.delivered_to import Remembered, TableError
from shadowmailbox.lmtp_store import LmtpStore
from shadowmailbox.server import MailboxServer
from shadowrelay import __version__
from shadowrelay.admin.guard import RequestRefused, check_token
from shadowrelay.admin.server import LIVE

_log = structlog.get_logger(__name__)
_PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_NOT_READY = "mail is not taken: the service is starting or stopping"


def build_mailbox_app(server: MailboxServer, *, token: str | None = None) -> Starlette:
    """The application. The metrics require ``token``, if it is given."""

    async def metrics(request: Request) -> Response:
        try:
            check_token(request.headers, token)
            table = await server.table.remembered() if server.table else Remembered(0, None, None)
        except RequestRefused as refusal:
            return _json({"error": refusal.sentence}, refusal.status)
        except TableError as error:
            _log.exception("metrics_failed")
            return _json({"error": f"the table cannot be read: {error}"}, 503)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Current(server, table))
        return Response(encode(registry), headers={**_PRIVATE, "content-type": content_type})

    async def live(request: Request) -> Response:
        del request
        return _json({"live": True}, 200)

    async def ready(request: Request) -> Response:
        del request
        found = server.serving
        return _json({"ready": found, "reason": "" if found else _NOT_READY}, 200 if found else 503)

    return Starlette(routes=[Route("/metrics", metrics), Route(LIVE, live), Route("/healthz/ready", ready)])


class _Current(Collector):
    def __init__(self, server: MailboxServer, table: Remembered) -> None:
        self._server, self._table = server, table

    def collect(self) -> Iterator[Metric]:
        for name, text, value in (*self._gauges(), *self._counters()):
            made = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield made(f"shadowrelay_mailbox_{name.removesuffix('_total')}", text, value=value)
        refused = CounterMetricFamily(
            "shadowrelay_mailbox_refused",
            "Recipients answered 4yz or 5yz after the content, by class.",
            labels=["class"],
        )
        for number in (4, 5):
            refused.add_metric([f"{number}yz"], self._server.counts.refused[number])
        yield refused
        info = GaugeMetricFamily("shadowrelay_mailbox_build_info", "1, with the version.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        server, table = self._server, self._table
        swept = server.counts.swept_at
        yield "ready", "1 while mail is taken.", int(server.serving)
        yield "start_time_seconds", "When it started, seconds since 1970.", server.started_at.timestamp()
        yield "table_rows", "Rows of the DeliveredTo table.", table.rows
        oldest = max(0.0, time.time() - table.oldest.timestamp()) if table.oldest else 0
        yield "table_oldest_seconds", "Age of its oldest row, 0 without one.", oldest
        yield (
            "sweep_timestamp_seconds",
            "When the table was last swept, seconds since 1970; 0: not yet.",
            swept.timestamp() if swept else 0,
        )
        if isinstance(server.store, LmtpStore):
            yield (
                "store_reachable",
                "0 after a failed attempt at the store, else 1.",
                int(server.store.reachable),
            )

    def _counters(self) -> Iterator[tuple[str, str, float]]:
        counts, store = self._server.counts, self._server.store
        failures = store.failures if isinstance(store, LmtpStore) else 0
        yield "delivered_total", "Recipients for whom a message was stored.", counts.delivered
        yield "duplicates_total", "Recipients who had the message: it was dropped.", counts.duplicates
        yield (
            "store_failures_total",
            "Messages that did not reach the store, or whose answer was lost.",
            failures,
        )
        yield "unrecorded_total", "Deliveries that could not be written into the table.", counts.unrecorded
        yield "forgotten_rows_total", "Rows that an operator had forgotten while it ran.", counts.forgotten
        yield "swept_rows_total", "Rows deleted because their time was over.", counts.swept
        yield "sweeps_failed_total", "Sweeps that could not be written.", counts.sweeps_failed


def _json(content: dict[str, object], status: int) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(content, status_code=status, headers={**_PRIVATE, **headers})
