"""Which members are asked for a copy: preference, numbers of attempts, turns."""

from __future__ import annotations

import pytest
from ledger_at_hand import A

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.shadow_servers import MemberPlace, candidates

OWN = MemberPlace(A, "here", "host-a")
NEAR = tuple(MemberPlace(ServerName(f"near{n}"), "here", f"rack{n}") for n in (1, 2, 3))
FAR = tuple(MemberPlace(ServerName(f"far{n}"), "there", f"rack{n}") for n in (4, 5, 6, 7, 8))


def asked(preference: ShadowMessagePreference, *, turn: int = 0, skipped: tuple[str, ...] = ()) -> list[str]:
    policy = Policy(shadow_message_preference_setting=preference)
    names = [ServerName(name) for name in skipped]
    return [place.name for place in candidates(OWN, (*NEAR, *FAR), policy, skipped=names, turn=turn)]


@pytest.mark.parametrize(
    ("preference", "expected"),
    [
        (ShadowMessagePreference.PREFER_REMOTE, ["far4", "far5", "far6", "far7", "near1", "near2"]),
        (ShadowMessagePreference.LOCAL_ONLY, ["near1", "near2"]),
        (ShadowMessagePreference.REMOTE_ONLY, ["far4", "far5", "far6", "far7"]),
    ],
)
def test_the_preference_decides_the_sites_and_their_order(
    preference: ShadowMessagePreference, expected: list[str]
) -> None:
    assert asked(preference) == expected


def test_few_members_are_tried_as_often_as_there_are_attempts() -> None:
    remote = ShadowMessagePreference.REMOTE_ONLY
    assert asked(remote, skipped=("far5", "far6", "far7")) == ["far4", "far8", "far4", "far8"]


def test_the_first_one_changes_from_message_to_message() -> None:
    firsts = [asked(ShadowMessagePreference.PREFER_REMOTE, turn=turn)[0] for turn in range(5)]
    assert firsts == [place.name for place in FAR]
