"""Cuts a whole list into pages: by ``limit``, and by ``after``, the ``next`` of the page before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shadowrelay.admin.guard import RequestRefused, page_limit


def paged(given: Mapping[str, str], answer: Mapping[str, Any], of: str, key: str) -> dict[str, Any]:
    """The answer with a page of its list ``of``, whose items are told apart by ``key``, and ``next``.

    Without ``limit`` the page has all that follows. Raises RequestRefused 400.
    """
    items, after = list(answer[of]), given.get("after", "")
    if after:
        places = [place for place, item in enumerate(items) if str(item[key]) == after]
        if not places:
            raise RequestRefused(
                400, "after is no next of a page before, or is gone: begin with the first page"
            )
        items = items[places[0] + 1 :]
    most = page_limit(given) if "limit" in given else len(items)
    following = str(items[most - 1][key]) if len(items) > most else None
    return {**answer, of: items[:most], "next": following}
