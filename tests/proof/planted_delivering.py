"""Faults in the queue: claims, attempts, settling, reports, and the tracking log."""

from __future__ import annotations

from .planting import Fault

_QUEUE = "delivery/test_queue.py::"

DELIVERING = (
    Fault(
        name="delivery before the members were asked",
        rule="a returning owner asks before it delivers",
        file="database/records.py",
        edits=((" or copy.confirmation is Confirmation.ASK or", " or"),),
        test="database/test_database_queue.py::test_some_messages_are_never_due[asking]",
    ),
    Fault(
        name="the queue of an opened database is due at once",
        rule="a returning owner asks before it delivers",
        file="database/ledger.py",
        edits=(
            ('                self.connection.executemany(SQL["hold_back"], [(id_,) for id_ in ids])\n', ""),
        ),
        test="database/test_database_opening.py::test_after_an_open_nothing_is_due_before_the_members_were_asked",
    ),
    Fault(
        name="a frozen owner sends before it looks at the clock",
        rule="an owner that was cut off for the time span asks before it delivers",
        file="delivery/still_ours.py",
        edits=(
            (
                "        while boundary.cut_off(seconds()):\n",
                "        while False:\n",
            ),
        ),
        test=_QUEUE + "test_a_node_that_was_frozen_asks_before_it_sends",
    ),
    Fault(
        name="a content is begun without a look at whose it is",
        rule="every attempt looks at ownership before the content",
        file="smtp/sending/transaction.py",
        edits=(("if self.wanted is not None and not await self.wanted():", "if False:"),),
        test=_QUEUE + "test_every_attempt_looks_whose_message_it_is_before_the_content",
    ),
    Fault(
        name="memory says that nothing has happened to a message",
        rule="every attempt looks at ownership before the content",
        file="database/copies.py",
        edits=(("        self._undisturbed.discard(after.id)\n", ""),),
        test=_QUEUE + "test_every_attempt_looks_whose_message_it_is_before_the_content",
    ),
    Fault(
        name="a silence that has ended is forgotten",
        rule="an owner that was cut off for the time span asks before it delivers",
        file="members/boundary.py",
        edits=(("                self._silences.add(name)\n", "                pass\n"),),
        test=_QUEUE + "test_a_silence_that_ended_during_an_attempt_is_looked_into_before_the_content_leaves",
    ),
    Fault(
        name="mail that a member at hand holds waits for one that is cut off",
        rule="mail that a member at hand holds does not wait for one out of reach",
        file="core/ownership/heartbeat.py",
        edits=(("if not copy.kept_by(at_hand):", "if True:"),),
        test=_QUEUE + "test_mail_that_a_member_at_hand_holds_does_not_wait_for_one_that_is_out_of_reach",
    ),
    Fault(
        name="a fork is not claimed",
        rule="a fork is sent by one worker at a time",
        file="database/queue.py",
        edits=(
            (
                'ledger.connection.execute(SQL["activate"], (message_id, next_hop)).rowcount\n',
                "0\n",
            ),
        ),
        test="database/test_database_queue.py::test_a_fork_is_claimed_once_until_it_is_given_back",
    ),
    Fault(
        name="the claim ends before the attempt does",
        rule="a fork is sent by one worker at a time",
        file="delivery/queue.py",
        edits=(
            (
                "            nonlocal session, again\n",
                "            nonlocal session, again\n"
                "            await self._database.transact(\n"
                "                lambda it: unclaim(it, claimed.copy.id, claimed.next_hop)\n"
                "            )\n",
            ),
        ),
        test=_QUEUE + "test_a_message_under_way_is_not_sent_a_second_time",
    ),
    Fault(
        name="the claim outlasts the attempt",
        rule="what was put off is tried again",
        file="delivery/queue.py",
        edits=(("            unclaim(ledger, claimed.copy.id, claimed.next_hop)\n", ""),),
        test=_QUEUE + "test_a_transient_refusal_is_tried_again_after_the_glitch_interval",
    ),
    Fault(
        name="an answer of an LMTP server waits for the others",
        rule="each answer is settled when it comes",
        file="smtp/sending/transaction.py",
        edits=(
            ("                if self.heard is not None and self._open:\n", "                if False:\n"),
        ),
        test="service/test_service.py::test_a_node_that_is_killed_knows_for_whom_its_mailbox_server_had_answered",
    ),
    Fault(
        name="the first answer of an LMTP server ends the claim",
        rule="a fork is sent by one worker at a time",
        file="delivery/queue.py",
        edits=(
            (
                "        meanwhile = Performer(transact=self._database.transact_briefly, report=writing)\n",
                "        meanwhile = Performer(transact=partial(self._settle, claimed), report=writing)\n",
            ),
        ),
        test=_QUEUE + "test_what_a_mailbox_server_answers_for_one_recipient_does_not_wait_for_the_others",
    ),
    Fault(
        name="settled before the next hop's answer",
        rule="nothing is discarded before it was delivered",
        file="delivery/script.py",
        edits=(
            (
                "    sent = await SendOn(",
                "    from shadowrelay.core.delivery.settling import Ending, Hop, Result\n"
                "    early = tuple(Result(r.number, Ending.ACCEPTED, '250 2.0.0') for r in recipients)\n"
                "    await Transact(lambda ledger: ledger.apply("
                "settle(ledger, copy.id, early, (), Hop('', False, False), clock())))\n"
                "    sent = await SendOn(",
            ),
        ),
        test=_QUEUE + "test_only_what_was_put_off_is_sent_again",
    ),
    Fault(
        name="settled without a word to the holders",
        rule="the discard event is in the transaction that settles",
        file="core/delivery/settling.py",
        edits=(
            (
                "    writes += announced(ledger, after, settled, now)\n",
                "",
            ),
        ),
        test="core/delivery/test_settling.py::test_settling_tells_every_possible_holder_in_the_same_decision",
    ),
    Fault(
        name="the original is discarded before its report has two copies",
        rule="a recipient settled by a report is released when the report is safe",
        file="core/delivery/settling.py",
        edits=(
            (
                "    awaited = {r.about: r.id for r in made.values() if",
                "    awaited = {r.about: r.id for r in () if",
            ),
        ),
        test=_QUEUE + "test_holders_hear_of_a_failure_only_once_its_report_is_safe",
    ),
    Fault(
        name="the id of a report is drawn",
        rule="two nodes cannot make two reports",
        file="delivery/reports.py",
        edits=(
            (
                "        report = report_id(copy.id, recipient.number, kind)\n",
                "        from uuid import uuid4\n        report = str(uuid4())\n",
            ),
        ),
        test=_QUEUE + "test_the_id_of_a_report_says_what_it_is_about",
    ),
    Fault(
        name="the outbox forgets a row before its file is flushed",
        rule="a committed event is never without its row in the log",
        file="tracking/writer.py",
        edits=(
            ("        await self._off_loop(self._sync)\n", "        await self._outbox.forget(upto)\n"),
            (
                "        await self._outbox.forget(upto)\n        self._forgotten = upto\n",
                "        await self._off_loop(self._sync)\n        self._forgotten = upto\n",
            ),
        ),
        test="tracking/test_tracking_writer.py::test_an_outbox_row_goes_only_after_its_file_was_fsynced",
    ),
    Fault(
        name="the log goes on after an fsync that failed",
        rule="a failed fsync is never retried",
        file="tracking/writer.py",
        edits=(("            self._failure = problem\n            raise\n", "            raise\n"),),
        test="tracking/test_tracking_writer.py::test_after_a_failed_fsync_nothing_more_is_written_or_forgotten",
    ),
    Fault(
        name="a log file has its final name before its footer is flushed",
        rule="a closed log file is whole",
        file="tracking/files.py",
        edits=(
            (
                "        self.sync()\n        closed = publish(",
                "        closed = publish(",
            ),
            (
                "        self.abandon()\n        return closed\n",
                "        self.sync()\n        self.abandon()\n        return closed\n",
            ),
        ),
        test="tracking/test_tracking_files.py::"
        "test_closing_syncs_the_file_then_renames_it_then_syncs_the_directory",
    ),
    Fault(
        name="a stop does not wait for a look at the queue",
        rule="a delivery that begins may finish before the node stops",
        file="delivery/queue.py",
        edits=(
            (
                "        async with self._looking:  # a look that is under way begins what it has claimed\n"
                "            await",
                "        if True:\n            await",
            ),
        ),
        test=_QUEUE + "test_a_stop_in_the_middle_of_a_look_waits_for_what_that_begins",
    ),
    Fault(
        name="after a long absence all is set aside that nobody confirms",
        rule="set aside is what was queued during a long absence, and nothing later",
        file="core/members/concluding.py",
        edits=(
            (
                "said.forgotten_since is not None and said.forgotten_since == question.since",
                "bool(said.forgotten_since)",
            ),
        ),
        test="members/test_repair.py::test_of_a_long_absence_only_what_was_queued_then_is_set_aside",
    ),
    Fault(
        name="a client that takes nothing keeps its connection",
        rule="whoever has no place any more has no connection either",
        file="smtp/receiving/library.py",
        edits=(("            transport.abort()\n", "            pass\n"),),
        test="smtp/test_receive_unread.py::"
        "test_a_client_that_reads_nothing_is_cut_off_and_leaves_no_connection_behind[uvloop]",
    ),
    Fault(
        name="who sends many commands has them all served first",
        rule="every client has its turn",
        file="smtp/receiving/conversation.py",
        edits=(("            if self._served == TURN:", "            if False:"),),
        test="smtp/test_receive_unread.py::"
        "test_a_client_that_sends_very_many_commands_at_once_leaves_others_their_turn",
    ),
    Fault(
        name="a refused login goes on to the next mechanism",
        rule="one wrong password is one failed login",
        file="smtp/sending/connection.py",
        edits=(("            self.AUTH_METHODS = (server.login.mechanism,)\n", "            pass\n"),),
        test="smtp/test_send_login.py::test_a_refused_login_is_not_tried_by_another_mechanism[cram-md5]",
    ),
    Fault(
        name="the password is said before TLS begins",
        rule="a password goes over verified TLS",
        file="smtp/sending/connection.py",
        edits=(
            ("        if server.login is not None:\n            await _log_in(client, server.login)\n", ""),
            (
                '        if server.tls != "none":\n            await _encrypt(connection)\n',
                "        if server.login is not None:\n            await _log_in(client, server.login)\n"
                '        if server.tls != "none":\n            await _encrypt(connection)\n',
            ),
        ),
        test="smtp/test_send_login.py::test_the_mechanism_that_was_chosen_is_spoken_under_tls[plain]",
    ),
    Fault(
        name="a server that asks for a login rejects the message",
        rule="what is said of us bounces no mail",
        file="smtp/sending/hop.py",
        edits=((" and reply.code not in _LOG_IN", ""),),
        test="smtp/test_send_login.py::test_mail_that_a_server_takes_only_after_a_login_waits_for_it[MAIL-530]",
    ),
    Fault(
        name="what a server repeats of the password is kept",
        rule="the password is in no reason",
        file="smtp/sending/connection.py",
        edits=(
            (
                "said = masked(error.message, login.username, password)",
                "said = error.message",
            ),
        ),
        test="smtp/test_send_login.py::"
        "test_a_server_that_repeats_the_password_does_not_bring_it_into_logs_and_errors[plain]",
    ),
    Fault(
        name="all sessions that there is mail for log in at once",
        rule="one wrong password is one failed login",
        file="delivery/attempt.py",
        edits=((" and not logged_in", " and False"),),
        test="delivery/test_queue.py::"
        "test_a_wrong_password_is_refused_once_and_not_in_each_session_that_there_is_mail_for",
    ),
    Fault(
        name="discard events do not wait for the journal copy",
        rule="a settlement is announced once its side effects are safe",
        file="core/delivery/journal.py",
        edits=(
            (
                "    return queued.but(None if already_safe(ledger, wanted.id) else wanted.id)\n",
                "    return queued.but(None)\n",
            ),
        ),
        test="core/delivery/test_journal.py::"
        "test_settlements_are_announced_once_the_journal_copy_has_a_second_copy",
    ),
    Fault(
        name="a new owner journals what the former one has journaled",
        rule="a message has one journal copy",
        file="core/delivery/journal.py",
        edits=(
            (
                "    if wanted is None or waiting or any(_journaled(one) for one in original.recipients):\n",
                "    if wanted is None or waiting:\n",
            ),
        ),
        test="core/delivery/test_journal.py::test_a_message_that_others_have_settled_in_part_was_journaled_by_them",
    ),
    Fault(
        name="a second settlement does not wait for the journal copy of the first",
        rule="a settlement is announced once its side effects are safe",
        file="core/delivery/journal.py",
        edits=(("        return Decision(waiting)\n", "        return Decision(None)\n"),),
        test="core/delivery/test_journal.py::"
        "test_settlements_are_announced_once_the_journal_copy_has_a_second_copy",
    ),
)
