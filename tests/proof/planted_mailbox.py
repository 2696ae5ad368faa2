"""Faults in the mailbox service: what it remembers, and when."""

from __future__ import annotations

from .planting import Fault

_STORE = "mailbox/test_lmtp_store.py::"
_COMMANDS = "mailbox/test_mailbox_table_commands.py::"

MAILBOX = (
    Fault(
        name="a delivery is remembered before the store took the message",
        rule="a message is remembered after the store's 250",
        file="mailbox/receiving.py",
        edits=(
            (
                "        await receiver.store.deliver(message, heard)\n",
                "        await self._record(keys)\n        await receiver.store.deliver(message, heard)\n",
            ),
        ),
        test=_STORE + "test_the_row_is_not_there_before_the_store_has_answered",
    ),
    Fault(
        name="a relay hears 250 before the delivery is remembered",
        rule="a message is remembered durably before the relay hears 250",
        file="mailbox/receiving.py",
        edits=(
            (
                "            await self._record(stored)\n",
                "            asyncio.get_running_loop().create_task(self._record(stored))\n",
            ),
        ),
        test=_STORE + "test_a_row_is_written_before_the_relay_hears_of_it",
    ),
    Fault(
        name="an answer of the store that was lost counts as a delivery",
        rule="an answer lost after the final dot is no delivery",
        file="mailbox/lmtp_store.py",
        edits=(
            (
                "            await heard({one.number: answer(one) for one in fresh})\n",
                '            yes = Reply(250, "2.0.0", "ok")\n'
                "            await heard(\n"
                "                {\n"
                "                    one.number: yes if one.ending is Ending.IN_DOUBT else answer(one)\n"
                "                    for one in fresh\n"
                "                }\n"
                "            )\n",
            ),
        ),
        test=_STORE + "test_an_answer_that_is_lost_after_the_final_dot_is_not_taken_for_a_delivery",
    ),
    Fault(
        name="two relays deliver the same message at once",
        rule="one delivery of a message at a time",
        file="mailbox/receiving.py",
        edits=(("                self._delivering |= keys\n", "                pass\n"),),
        test=_STORE + "test_two_relays_that_send_the_same_message_at_once_deliver_it_once",
    ),
    Fault(
        name="forget says how many, and leaves the rows",
        rule="what an operator has forgotten is delivered again",
        file="mailbox/control.py",
        edits=(("await table.forget(_which(request))", "await table.count(_which(request))"),),
        test=_COMMANDS + "test_what_is_forgotten_is_delivered_again_by_the_service_that_runs",
    ),
    Fault(
        name="forget leaves the rows of all recipients but the first",
        rule="what an operator has forgotten is delivered again",
        file="database/delivered_to.py",
        edits=(
            (
                "for one in {one.lower(): one for one in which.recipients}.values()]\n",
                "for one in which.recipients[:1]]\n",
            ),
        ),
        test="database/test_delivered_to.py::test_exactly_what_was_named_is_forgotten_and_counted_before",
    ),
)
