"""A member of another release lacks some field of what it tells: every page is shown all the same."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from admin.admin_node import (
    MX2,
    NOW,
    FakeNode,
    a_node,
    ask,
    attempted,
    fill,
    held,
    meet,
    message_id,
    received,
    serving,
)
from admin.admin_node import peer as a_peer

from shadowrelay.admin.access import Access
from shadowrelay.console.app import Console
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.operating import ActAnswer
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.shown.reading import UNKNOWN

PAGES = (
    "/",
    "/queues",
    "/queues/outside",
    "/messages?q=bob@example.net",
    f"/messages/{message_id(1)}",
    "/node",
    "/api/v1/cluster/status",
    "/api/v1/cluster/queues",
    "/api/v1/cluster/queues/outside",
    "/api/v1/cluster/find?q=bob@example.net",
    f"/api/v1/cluster/trace/{message_id(1)}",
)


class Newer(FakeNode):
    """A node whose member leaves out one field of one look. ``heard``: what it would tell, by look."""

    drops: tuple[str, tuple[Any, ...]] | None = None
    heard: dict[str, dict[str, Any]]

    async def _elsewhere(self, step: Operate, timeout: float) -> ActAnswer | Unanswered:
        said = await super()._elsewhere(step, timeout)
        if isinstance(said, Unanswered):
            return said
        told = deepcopy(dict(said.told))
        self.heard[step.act.action] = told
        if self.drops and self.drops[0] == step.act.action:
            told = deepcopy(told)
            _drop(told, self.drops[1])
        return ActAnswer(told)


def _drop(value: Any, path: tuple[Any, ...]) -> None:
    for one in value if path[0] == 0 else [value]:
        if path[0] == 0:
            _drop(one, path[1:])
        elif len(path) == 1:
            one.pop(path[0], None)
        elif one.get(path[0]) is not None:
            _drop(one[path[0]], path[1:])


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from fields(inner, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from fields(value[0], (*path, 0))


async def test_a_page_is_shown_whatever_field_a_member_does_not_tell(tmp_path: Path):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    async with a_node(tmp_path / "1") as made, a_node(tmp_path / "2") as second:
        first = Newer(made.database, made.room)
        first.heard = {}
        first.statuses = [a_peer(MX2)]
        await fill(first, meet(MX2), received(1, MX2), held(5, MX2))
        await fill(first, attempted(1, Ending.DEFERRED, "451 4.7.1 later"))
        second.name = MX2
        second.traced = [
            {"id": message_id(1), "at": "2026-11-21T10:00:00.000Z", "sequence": 1, "incarnation": "1",
             "database_id": "d", "event": "RECEIVE", "source": "SMTP", "context": "", "server": "mx2",
             "client": "", "recipients": ["bob@example.net"], "recipient_count": 1, "status": "",
             "custom": {}, "columns": {}},
        ]  # fmt: skip
        await fill(second, meet(MX2), held(1, MX2), received(3, None))
        await fill(second, attempted(3, Ending.DEFERRED, "451 4.7.1 later"))
        first.elsewhere[MX2] = second
        pages = Console(node=first, access=Access(()), clock=lambda: NOW)
        tried, wrong = 0, []
        async with serving(first, access=Access(()), console=pages) as port:
            for page in PAGES:
                first.drops, first.heard = None, {}
                whole = await ask(port, page)
                assert whole.status == 200, (page, whole.text)
                for look, told in list(first.heard.items()):
                    for path in fields(told):
                        first.drops = look, path
                        got = await ask(port, page)
                        tried += 1
                        if got.status != 200 or (page.startswith("/api") and f'"{UNKNOWN}"' in got.text):
                            wrong.append((page, look, path))
    assert not wrong, f"{len(wrong)} of {tried}: {wrong}"
    assert tried > 400
