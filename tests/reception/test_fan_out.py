"""One message for several sites of other boundaries leaves once for those behind a common path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sending import MESSAGE, sent
from stations import boundary, eventually

SITES: dict[str, Any] = {
    "site": "chicago",
    "sites": {
        name: {"hosts": [f"hub.{name}.example.net:25"]} for name in ("ny", "london", "dublin", "paris")
    },
    "site_links": [
        {"sites": pair} for pair in (["chicago", "ny"], ["ny", "london"], ["london", "dublin", "paris"])
    ],
}
ROUTES = {
    "out": {"domains": ["*"], "host": "127.0.0.1"},
    "ireland": {"domains": ["example.ie"], "site": "dublin", "host": "127.0.0.1"},
    "france": {"domains": ["example.fr"], "site": "paris", "host": "127.0.0.1"},
    "new-york": {"domains": ["ny.example"], "site": "ny", "host": "127.0.0.1"},
}


async def hops(directory: Path, *recipients: str) -> list[str]:
    """The next hops of the recipients of one message."""
    async with boundary(directory, "mx1", "mx2", routes=ROUTES, **SITES) as (owner, holder):
        assert (await sent(owner, MESSAGE, *recipients)).startswith("250 ")
        (ours,), (held,) = await owner.copies(), await holder.copies()
        assert held.recipients == ours.recipients
        return [one.next_hop for one in ours.recipients]


async def test_recipients_behind_a_common_path_have_one_next_hop(tmp_path: Path) -> None:
    found = await hops(tmp_path, "a@example.ie", "b@example.fr", "c@example.org")
    assert found == ["site/london", "site/london", "out"]


async def test_a_recipient_on_the_path_is_where_the_others_fork(tmp_path: Path) -> None:
    found = await hops(tmp_path, "a@example.ie", "b@example.fr", "c@ny.example")
    assert found == ["site/ny"] * 3


async def test_a_single_site_is_gone_to_straight(tmp_path: Path) -> None:
    assert await hops(tmp_path, "a@example.ie", "b@example.ie") == ["site/dublin"] * 2


async def test_the_members_of_a_list_share_copies_as_recipients_do(tmp_path: Path) -> None:
    file = tmp_path / "recipients.toml"
    file.write_text('[lists."team@example.org"]\nmembers = ["a@example.ie", "b@example.fr"]\n')
    async with boundary(tmp_path, "mx1", routes=ROUTES, recipients_file=str(file), **SITES) as (one,):
        await sent(one, MESSAGE, "team@example.org")
        one.run_queue()

        async def members() -> bool:
            found = [copy for copy in await one.copies() if copy.content_of is not None]
            return [[to.next_hop for to in copy.recipients] for copy in found] == [["site/london"] * 2]

        await eventually(members)
