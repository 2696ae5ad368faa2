"""What the tracking log tells of a message whose rows cannot be believed."""

from __future__ import annotations

from shadowrelay.core.messages import Status
from shadowrelay.tracking.lookup import settled


def row(event: str, recipients: str, context: str = "") -> dict[str, str]:
    return {"event-id": event, "custom-data": f"S:Recipients={recipients}", "source-context": context}


def test_a_list_that_was_expanded_is_settled() -> None:
    assert settled([row("EXPAND", "2"), row("DEFER", "1")]) == {2: Status.RELAYED}


def test_a_copy_for_a_hop_that_is_discarded_was_relayed_and_not_delivered_inside() -> None:
    relayed, discarded = row("SENDEXTERNAL", "1+2"), row("HADISCARD", "1", "ExplicitlyDiscarded;id")
    for rows in ([relayed, discarded], [discarded, relayed]):
        assert settled(rows) == {1: Status.RELAYED, 2: Status.RELAYED}
    assert settled([discarded]) == {1: Status.DELIVERED}
