"""Faults in reading answers of next hops, and in what follows from one that cannot be read."""

from __future__ import annotations

from .planting import Fault

UNREAD = (
    Fault(
        name="lines of one reply may differ in their code",
        rule="an answer is one only if every line can be read, and if it came when it was asked for",
        file="wire/replies.py",
        edits=(
            ("        if self._code and code != self._code:\n", "        if False:\n"),
            ("        if other != code:\n", "        if False:\n"),
        ),
        test="wire/test_reply_grammar.py::test_the_reader_reads_what_the_rfc_says[0]",
    ),
    Fault(
        name="a reply that breaks off is no answer at all",
        rule="an answer is one only if every line can be read, and if it came when it was asked for",
        file="smtp/sending/connection.py",
        edits=(('unreadable(f"{begun} [breaks off]") if begun else error', "error"),),
        test="smtp/test_send_answers.py::test_an_answer_cut_at_each_octet_is_one_only_when_it_is_whole[close]",
    ),
    Fault(
        name="answers of LMTP behind one that makes no sense are believed",
        rule="an answer is one only if every line can be read, and if it came when it was asked for",
        file="smtp/sending/transaction.py",
        edits=(
            (
                "reply.permanent):\n            self._give_up(",
                "reply.permanent or True):\n            self._give_up(",
            ),
        ),
        test="smtp/test_send_answers.py::test_each_answer_ends_as_the_rfc_reads_it[lmtp]",
    ),
    Fault(
        name="what came before the dot answers it",
        rule="an answer is one only if every line can be read, and if it came when it was asked for",
        file="smtp/sending/connection.py",
        edits=(("                if not self._outstanding:\n", "                if False:\n"),),
        test="smtp/test_send_answers.py::test_what_came_before_the_dot_is_no_answer",
    ),
    Fault(
        name="an unreadable answer is followed by the plain interval",
        rule="what the next hop may have is sent again after growing pauses, to that host alone",
        file="delivery/attempt.py",
        edits=(("        if one.ending is not Ending.UNREADABLE:\n", "        if True:\n"),),
        test="delivery/test_unread_answers.py::test_in_any_number_of_plain_intervals_it_is_delivered_once[cut]",
    ),
    Fault(
        name="tries after unreadable answers have no end",
        rule="what the next hop may have is sent again after growing pauses, to that host alone",
        file="core/unread.py",
        edits=(("    if tries > policy.unreadable_answer_retry_count:\n", "    if False:\n"),),
        test="delivery/test_unread_answers.py::test_the_pauses_grow_and_then_an_operator_decides",
    ),
    Fault(
        name="another host gets what a host may have",
        rule="what the next hop may have is sent again after growing pauses, to that host alone",
        file="delivery/hosts.py",
        edits=(("hosts = tuple(host for host in hosts if str(host) == self.only)", "pass"),),
        test="delivery/test_unread_answers.py::test_no_other_host_gets_what_a_host_may_have",
    ),
    Fault(
        name="holders do not hear of an unreadable answer",
        rule="what the next hop may have is sent again after growing pauses, to that host alone",
        file="core/delivery/settling.py",
        edits=(("    if any(one.ending is Ending.UNREADABLE for one in current):\n", "    if False:\n"),),
        test="members/test_unread_told.py::test_a_holder_hears_of_each_try_and_pauses_when_it_promotes_its_copy",
    ),
    Fault(
        name="a later copy lacks the count of unreadable answers",
        rule="what the next hop may have is sent again after growing pauses, to that host alone",
        file="smtp/members/offer.py",
        edits=(("not recipient.settled and version > 4:", "not recipient.settled and version > 5:"),),
        test="members/test_unread_told.py::test_a_copy_that_is_made_later_has_the_count",
    ),
    Fault(
        name="the report does not say that the message may have been delivered",
        rule="what the next hop may have is sent again after growing pauses, to that host alone",
        file="wire/report.py",
        edits=(("    if kind in _TROUBLES and recipient.unread is not None:\n", "    if False:\n"),),
        test="delivery/test_unread_answers.py::test_it_expires_as_ever_and_the_report_says_that_it_may_have_been_delivered",
    ),
)
