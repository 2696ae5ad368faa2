"""What an operator does with messages that are set aside."""

import pytest
from admin_node import MX2, NOW, a_node, ask, fill, message_id, received, serving

from shadowrelay.core.messages import Stage
from shadowrelay.core.ownership.set_aside import set_aside


@pytest.fixture
async def node(tmp_path):
    async with a_node(tmp_path) as made:
        yield made


async def post(port, identifier, verb):
    target = f"/api/v1/messages/{identifier}/{verb}"
    return await ask(port, target, "POST", content_type="application/json")


async def put_aside(node, number):
    await fill(node, received(number, MX2))
    identifier = message_id(number)
    await node.database.transact(lambda ledger: ledger.apply(set_aside(ledger.copy(identifier), NOW)))
    return identifier


async def test_a_message_that_is_set_aside_can_go_out_and_its_age_begins_anew(node):
    identifier = await put_aside(node, 1)
    async with serving(node) as port:
        done = await post(port, identifier, "resume")
        again = await post(port, identifier, "resume")
    assert (done.status, again.status) == (200, 409)
    copy = await node.database.transact(lambda ledger: ledger.copy(identifier))
    assert copy.stage is Stage.QUEUED
    assert node.database.ledger.tracked["RESUME"] == 1


async def test_only_a_message_that_is_set_aside_can_be_bounced(node):
    identifier = await put_aside(node, 1)
    await fill(node, received(2, MX2))
    async with serving(node) as port:
        aside = await post(port, identifier, "bounce")
        queued = await post(port, message_id(2), "bounce")
    assert (aside.status, queued.status) == (200, 409)
    assert "not set aside" in queued.json["error"]
