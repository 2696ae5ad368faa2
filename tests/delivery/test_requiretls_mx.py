"""REQUIRETLS and ``TLS-Required: No`` (RFC 8689) at hosts of MX: does a policy count?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from one_domain import TO
from policy_host import policy
from sending import sent
from stations import eventually
from test_mta_sts_delivery import HOST, World, world
from test_requiretls import WAIVING, Certificates, here

from shadowrelay.core.messages import Copy, Status

__all__ = ["here"]


async def first(found: World) -> Copy:
    """The message of the client."""
    (copy,) = [copy for copy in await found.found.copies() if copy.envelope.sender]
    return copy


async def failed(found: World) -> str:
    """Why the message failed."""

    async def over() -> bool:
        return (await first(found)).recipients[0].status is Status.FAILED

    await eventually(over)
    return (await first(found)).recipients[0].last_reply


@pytest.mark.parametrize("mode", ["enforce", "testing"])
async def test_a_host_that_a_policy_vouches_for_gets_the_message_with_it(
    tmp_path: Path, here: Certificates, mode: str
) -> None:
    async with world(tmp_path, policy(HOST, mode=mode), requiretls=True, receive=here.receive) as found:
        await here.required(found.found, WAIVING, TO)  # the header field does not count beside it
        await eventually(lambda: found.hop.taken)
        assert (found.hop.asked, found.hop.taken) == (1, [True])


async def test_a_host_that_nothing_vouches_for_gets_nothing(tmp_path: Path, here: Certificates) -> None:
    """It may be an attacker's, with a good certificate for its own name. The report goes there, as it may."""
    async with world(tmp_path, "no policy", requiretls=True, receive=here.receive) as found:
        await here.required(found.found, WAIVING, TO)
        assert (await failed(found)).startswith("550 5.7.10 ")


async def test_in_testing_a_wrong_certificate_keeps_it_back(tmp_path: Path, here: Certificates) -> None:
    async with world(
        tmp_path,
        policy(HOST, mode="testing"),
        shows="mail.example.org",
        requiretls=True,
        receive=here.receive,
    ) as found:
        await here.required(found.found, WAIVING, TO)
        assert (await failed(found)).startswith("550 5.7.10 ")


async def test_a_host_that_does_not_offer_it_gets_nothing(tmp_path: Path, here: Certificates) -> None:
    async with world(tmp_path, policy(HOST), receive=here.receive) as found:
        await here.required(found.found, WAIVING, TO)
        assert (await failed(found)).startswith("550 5.7.30 ")


@pytest.mark.parametrize(
    "wrong", [{"tls": False}, {"shows": "mail.example.org"}, {"said": policy("mail.example.com")}]
)
async def test_who_waives_tls_is_held_back_by_no_policy(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """To report that a server of mail is misconfigured, for one. It tells nothing of the policy, either."""
    async with world(tmp_path, **{"said": policy(HOST), **wrong}) as found:
        await found.waits("4.7.5")
        told = found.told()
        assert (await sent(found.found, WAIVING, TO)).startswith("250 ")
        await eventually(lambda: found.hop.taken)
        assert found.hop.taken == ["tls" not in wrong]
        assert found.told() == told
