"""Faults in where a transaction begins and ends, in what a session says of it."""

from __future__ import annotations

from .planting import Fault

_ONE = "a message has the sender, the recipients and the content of one transaction"
_SESSION = "smtp/receiving/session.py"
_ORDERS = "smtp/test_transaction_orders.py::test_no_order_of_up_to_six_verbs_mixes_two_transactions"

TRANSACTIONS = (
    Fault(
        name="a last chunk that is refused leaves the transaction open",
        rule=_ONE,
        file=_SESSION,
        edits=(
            (
                "        if last:\n            await self.forget()\n",
                "        if last and transaction.recipients:\n            await self.forget()\n",
            ),
        ),
        test=f"{_ORDERS}[SMTP]",
    ),
    Fault(
        name="DATA that nobody is left for leaves the transaction open",
        rule=_ONE,
        file=_SESSION,
        edits=(("            if transaction.asked:", "            if transaction.recipients:"),),
        test=f"{_ORDERS}[SMTP]",
    ),
    Fault(
        name="DATA out of order ends the transaction",
        rule="a verb out of order changes nothing",
        file=_SESSION,
        edits=(("            if transaction.asked:", "            if True:"),),
        test=f"{_ORDERS}[LMTP]",
    ),
    Fault(
        name="a chunk that was refused for want of recipients is forgotten",
        rule="a content has no hole",
        file=_SESSION,
        edits=(
            (
                "        transaction.chunking = True\n        if transaction.failed is None:\n"
                "            transaction.failed = self.lacks(transaction)\n",
                "        if (lacking := self.lacks(transaction)) is not None:\n"
                "            transaction.failed = lacking\n            return None\n"
                "        transaction.chunking, transaction.failed = True, None\n",
            ),
        ),
        test=f"{_ORDERS}[SMTP]",
    ),
    Fault(
        name="a chunk behind one that was refused is taken",
        rule="a content has no hole",
        file=_SESSION,
        edits=(
            (
                "        return transaction.body if transaction.failed is None else None\n",
                "        transaction.failed = None if transaction.body else transaction.failed\n"
                "        return transaction.body\n",
            ),
        ),
        test=f"{_ORDERS}[members]",
    ),
    Fault(
        name="a recipient may be added between two chunks",
        rule=_ONE,
        file=_SESSION,
        edits=(
            ("        if transaction.chunking:\n            raise", "        if False:\n            raise"),
        ),
        test=f"{_ORDERS}[SMTP]",
    ),
    Fault(
        name="DATA goes on with what BDAT began",
        rule="DATA and BDAT are never mixed in a transaction",
        file=_SESSION,
        edits=(
            ("        if transaction.chunking:\n            return", "        if False:\n            return"),
        ),
        test=f"{_ORDERS}[LMTP]",
    ),
    Fault(
        name="MAIL begins anew in the middle of a transaction",
        rule=_ONE,
        file=_SESSION,
        edits=(
            (
                "        if self.transaction is not None or envelope is None:\n",
                "        if envelope is not None and self.transaction is not None:\n"
                "            envelope.mail_from = None\n        if envelope is None:\n",
            ),
        ),
        test=f"{_ORDERS}[SMTP]",
    ),
    Fault(
        name="content that is refused at its end leaves the transaction open",
        rule=_ONE,
        file=_SESSION,
        edits=(
            (
                "            await self.forget()\n            replies = [refusal] * expected\n",
                "            replies = [refusal] * expected\n",
            ),
        ),
        test=f"{_ORDERS}[SMTP]",
    ),
    Fault(
        name="a copy is taken without a recipient that came between its chunks",
        rule="a copy has all its recipients, or is none",
        file="smtp/members/session.py",
        edits=(
            (
                "        if transaction.refused:\n",
                "        if transaction.refused and not transaction.body:\n",
            ),
        ),
        test=f"{_ORDERS}[members]",
    ),
    Fault(
        name="a last chunk without a recipient is answered by nothing",
        rule="each end of data has an answer",
        file="smtp/receiving/transaction.py",
        edits=(("        return max(1, len(self.recipients))", "        return len(self.recipients)"),),
        test=f"{_ORDERS}[LMTP]",
    ),
    Fault(
        name="TLS keeps what was said before it",
        rule="TLS begins a session anew",
        file=_SESSION,
        edits=(
            (
                "        await self.forget()\n        await self.answer(Reply(220,",
                "        await self.answer(Reply(220,",
            ),
        ),
        test="smtp/test_transaction_orders.py::test_tls_ends_the_transaction_in_every_state",
    ),
    Fault(
        name="a recipient that is named twice gets the message twice",
        rule="a recipient that is named several times gets the message once",
        file="reception/addressing.py",
        edits=(("        if merge and len(found) > 1:\n", "        if False:\n"),),
        test="reception/test_intake.py::test_a_recipient_that_is_named_several_times_gets_the_message_once",
    ),
    Fault(
        name="two recipients whose local parts differ in case are one",
        rule="a recipient that is named several times gets the message once",
        file="core/recipients.py",
        edits=(
            (
                "same = unquoted(local), canonical(domain)",
                "same = unquoted(local).lower(), canonical(domain)",
            ),
        ),
        test="core/test_recipients.py::test_a_recipient_that_is_named_several_times_is_one",
    ),
    Fault(
        name="a report that the second RCPT asked for is forgotten",
        rule="a recipient that is named several times gets the message once",
        file="core/recipients.py",
        edits=(
            ("            made[same] = replace(first, notify=notify, orcpt=orcpt)\n", "            pass\n"),
        ),
        test="core/test_recipients.py::test_what_is_one_recipient_gets_each_report_that_was_asked_for",
    ),
    Fault(
        name="a client of a UNIX socket is turned away",
        rule="who is behind a proxy is the client, and only a proxy says so",
        file="smtp/receiving/library.py",
        edits=(("        (AF.UNIX, PROTO.STREAM),\n", ""),),
        test="smtp/test_receive_proxy.py::test_a_proxy_may_speak_for_itself",
    ),
    Fault(
        name="a copy may be of any age",
        rule="any number of a member is within bounds, or an error of its line",
        file="wire/xshadow.py",
        edits=(("    if length > (_LAST if len(parts) == 5 else _OLDEST):\n", "    if length > _LAST:\n"),),
        test="smtp/test_member_session.py::test_an_age_of_thousands_of_years_is_an_error_of_its_line",
    ),
    Fault(
        name="without a descriptor for the tracking log the node ends",
        rule="who connects cannot end a node",
        file="tracking/writer.py",
        edits=(
            ("            if error.errno not in _PASSING:\n                raise\n", "            raise\n"),
        ),
        test="tracking/test_tracking_writer.py::"
        "test_without_a_descriptor_rows_wait_in_the_outbox_and_the_node_lives",
    ),
    Fault(
        name="a tracking file needs a descriptor to be closed",
        rule="who connects cannot end a node",
        file="tracking/files.py",
        edits=(("    if folder is None:\n", "    if True:\n"),),
        test="tracking/test_tracking_writer.py::test_a_node_may_stop_without_descriptors",
    ),
    Fault(
        name="the tracking log has no descriptor in reserve",
        rule="who connects cannot end a node",
        file="tracking/writer.py",
        edits=(("            while len(self._spare) < _SPARE:\n", "            while False:\n"),),
        test="tracking/test_tracking_writer.py::test_the_next_file_finds_a_descriptor_though_all_are_taken",
    ),
    Fault(
        name="mail is taken though the tracking log waits",
        rule="who connects cannot end a node",
        file="database/room.py",
        edits=(
            (
                "        return not (self._short or self.without_descriptors) and",
                "        return not self._short and",
            ),
        ),
        test="reception/test_failing_disk.py::"
        "test_while_the_tracking_log_waits_for_a_descriptor_mail_and_copies_are_put_off",
    ),
)
