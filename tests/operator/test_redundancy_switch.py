"""Shadow redundancy is switched on one node, for all members at once; what becomes of copies then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sending import MESSAGE, sent
from stations import Station, boundary, eventually, station

from shadowrelay.core.messages import Reason
from shadowrelay.core.operating import Act, Scope
from shadowrelay.core.switches import Switch
from shadowrelay.core.switching import REDUNDANCY
from shadowrelay.members import reconcile, record_replication, repair
from shadowrelay.operator.acts import ActRefused
from shadowrelay.wire.records import record_told

LARGE = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 1000


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in (reconcile, repair):
        monkeypatch.setattr(stage, "INTERVAL", 0.03)
    monkeypatch.setattr(repair, "RELEASE_INTERVAL", 0.05)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)


async def running(*stations: Station) -> None:
    for one in stations:
        one.run_links()
        one.run_reconcile()
        one.run_repair()
        one.run(one.node.replication.run())
    for one in stations:

        async def met(one: Station = one) -> bool:
            return len(await one.read(lambda ledger: tuple(ledger.members()))) == len(stations) - 1

        await eventually(met)


async def turn(one: Station, *, on: bool, reason: str = "the link is down") -> None:
    await one.node.redundancy.turn(on=on, operator="ann", reason=reason)


def everywhere(stations: list[Station], *, on: bool) -> bool:
    return all(one.node.in_force.redundancy is on for one in stations)


async def test_it_is_switched_on_every_member_and_all_show_who_and_why(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as stations:
        await running(*stations)
        await turn(stations[1], on=False)
        await eventually(lambda: everywhere(stations, on=False))
        for one in stations:
            shown = await one.node.redundancy.show()
            switch = shown["switch"]
            assert switch is not None
            assert (shown["on"], shown["settings_file"], shown["overruled"]) == (False, True, False)
            assert (switch["operator"], switch["reason"]) == ("ann", "the link is down")
            assert switch["changed_by"] == stations[1].name

        async def all_have_it() -> bool:
            return all(one["has"] for one in (await stations[1].node.redundancy.show())["members"])

        await eventually(all_have_it)
        await turn(stations[2], on=True)
        await eventually(lambda: everywhere(stations, on=True))


async def test_off_lets_copies_go_and_accepts_alone_and_on_makes_what_is_queued_redundant(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as stations:
        await running(*stations)
        owner = stations[0]
        for _ in range(4):
            await sent(owner, MESSAGE)
        await turn(owner, on=False)

        async def no_copies() -> bool:
            return not [copy for one in stations[1:] for copy in await one.copies()]

        await eventually(no_copies)
        assert "HADISCARD" in [event for one in stations[1:] for event in await one.events()]
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        assert (await owner.events())[-1] == "RECEIVE"
        assert await no_copies()
        await turn(owner, on=True)

        async def two_copies() -> bool:
            held = [copy.id for one in stations[1:] for copy in await one.copies() if copy.held]
            ours = await owner.copies()
            return len(held) == len(ours) == 5 and not any(copy.exposed for copy in ours)

        await eventually(two_copies)


async def test_a_copy_goes_only_after_its_owner_has_compared_its_own(tmp_path: Path) -> None:
    """The owner does not know yet that its content is damaged: the other copy is the only good one."""
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await running(owner, holder)
        await sent(owner, MESSAGE)
        await sent(owner, LARGE)
        (file,) = owner.files()
        (owner.node.spool / file).write_bytes(b"x" * len(LARGE))
        await turn(owner, on=False)

        async def one_left() -> bool:
            return len(await holder.copies()) == 1

        await eventually(one_left)
        (kept,) = await holder.copies()
        assert kept.held
        (damaged,) = [copy for copy in await owner.copies() if copy.damaged]
        assert damaged.id == kept.id


async def test_a_holder_keeps_the_copies_of_an_owner_that_is_away_and_promotes_them(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await running(owner, holder)
        await sent(owner, MESSAGE)
        await owner.quiet()
        await owner.connectors[0].stop(0)
        await eventually(lambda: owner.name not in holder.node.boundary.reachable())
        await turn(holder, on=False)
        await eventually(lambda: not holder.node.in_force.redundancy)
        (copy,) = await holder.copies()
        assert copy.held
        (tmp_path / "new").mkdir()
        lost = await station(tmp_path / "new", "mx1", ["mx2"], disk=1)
        try:
            holder.knows(lost)

            async def promoted() -> bool:
                (copy,) = await holder.copies()
                return copy.owned

            await eventually(promoted)
            rows = [row for row in await holder.tracked() if row["event-id"] == "RESUBMIT"]
            assert rows[0]["source-context"] == Reason.DATABASE_REPLACED
        finally:
            await holder.quiet()
            await lost.stop()


async def test_a_member_that_was_away_learns_it_at_its_next_contact(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, other):
        addresses = one.node.members.addresses
        there = addresses[other.name]
        addresses[other.name] = replace(there, port=1)  # type: ignore[index]
        one.run_links()
        one.run(one.node.replication.run())
        await turn(one, on=False)
        await eventually(lambda: other.name not in one.node.boundary.reachable())
        assert other.node.in_force.redundancy
        (having,) = (await one.node.redundancy.show())["members"]
        assert not having["has"]
        one.knows(other)
        await eventually(lambda: not other.node.in_force.redundancy)


async def test_the_settings_file_counts_again_once_it_says_something_else(tmp_path: Path) -> None:
    first = await station(tmp_path, "mx1", ["mx2"])
    await turn(first, on=False)
    assert not first.node.in_force.redundancy
    await first.stop()
    for disk, file, on, overruled in ((1, True, False, False), (2, False, False, True)):
        again = await station(tmp_path, "mx1", ["mx2"], disk=disk, shadow_redundancy_enabled=file)
        await again.node.replication.look()
        shown = await again.node.redundancy.show()
        assert (shown["on"], shown["overruled"]) == (on, overruled)
        await again.stop()


async def test_a_member_of_an_older_version_is_shown_as_such_and_the_others_switch(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (one, old, new):
        del old.node.acts.actions[Switch.kind]  # type: ignore[attr-defined]
        await running(one, old, new)
        await turn(one, on=False)
        await eventually(lambda: not new.node.in_force.redundancy)

        async def told() -> bool:
            having = {each["name"]: each for each in (await one.node.redundancy.show())["members"]}
            return "older version" in having[old.name]["why"] and having[new.name]["has"]

        await eventually(told)
        assert old.node.in_force.redundancy
        await sent(old, MESSAGE)  # a member that is off still holds copies of one that is on
        assert not any(copy.exposed for copy in await old.copies())


async def test_a_switch_of_another_setting_is_refused(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, other):
        await turn(one, on=False)
        found = await one.read(lambda ledger: ledger.switch(REDUNDANCY))
        assert found is not None
        arguments = {"switch": record_told(replace(found, name="data_dir"))}
        act = Act(
            job=found.id, action=Switch.kind, scope=Scope.OPERATE, operator="", reason="", arguments=arguments
        )
        with pytest.raises(ActRefused, match="cannot switch data_dir"):
            await other.node.records.actions()[Switch.kind].perform(one.name, act)
        assert other.node.in_force.redundancy
