"""Faults in aliases, known recipients and distribution lists, and in what the audit makes of them."""

from __future__ import annotations

from .planting import Fault, in_audit

_CORE = "core/delivery/test_expanding.py::"
_BOOK = "core/test_recipients.py::"
_SAFE = "a list is announced once the message to its members is safe"

LISTS = (
    Fault(
        name="discard events do not wait for the message to the members",
        rule=_SAFE,
        file="core/delivery/settling.py",
        edits=(
            (
                "    awaited |= {one.about: one.id for one in lists.values() "
                "if not already_safe(ledger, one.id)}\n",
                "",
            ),
        ),
        test=_CORE + "test_a_list_is_announced_once_the_message_to_its_members_has_a_second_copy",
    ),
    Fault(
        name="a list does not wait for the report on it",
        rule=_SAFE,
        file="core/events/side_effects.py",
        edits=(("report=_next(ledger, original, one) if", "report=None if"),),
        test=_CORE + "test_a_list_waits_for_its_members_message_and_for_the_report_on_it[False]",
    ),
    Fault(
        name="nodes with different files give different recipients one id",
        rule="one id never has two envelopes",
        file="core/delivery/expanding.py",
        edits=((", folded(about.address), of_envelope(envelope, recipients))", ", folded(about.address))"),),
        test=_CORE + "test_other_members_or_another_owner_make_another_message",
    ),
    Fault(
        name="what is sent to a list in reports is sent in the owner's name",
        rule="reports never lead to more reports",
        file="core/delivery/expanding.py",
        edits=((" if copy.envelope.sender else", " if book else"),),
        test=_CORE + "test_reports_to_a_list_never_lead_to_more_reports",
    ),
    Fault(
        name="a loop of lists is not told of",
        rule="members get a message once",
        file="core/recipients.py",
        edits=(("                loops[key] = None\n", "                pass\n"),),
        test=_BOOK + "test_a_list_inside_itself_is_cut_there",
    ),
    Fault(
        name="whoever is unknown gets a bounce instead of a refusal",
        rule="unknown recipients are refused before the content",
        file="reception/addressing.py",
        edits=(
            ("            if found.what in (Becomes.UNKNOWN, Becomes.LOOP):\n", "            if False:\n"),
        ),
        test="delivery/test_lists.py::test_who_is_unknown_is_refused_before_the_content",
    ),
    Fault(
        name="a postmaster that is not listed is refused",
        rule="every domain has a postmaster",
        file="core/recipients.py",
        edits=(("if domain not in self.known or local == _POSTMASTER:", "if domain not in self.known:"),),
        test=_BOOK + "test_nobody_has_an_address_only_where_recipients_are_known",
    ),
    Fault(
        name="the sender's address for a recipient is forgotten",
        rule="reports name the address that the sender gave",
        file="core/recipients.py",
        edits=(("(typed(one.address) if found.rewritten else None)", "None"),),
        test=_BOOK + "test_a_rewritten_recipient_keeps_the_address_that_the_sender_gave_as_orcpt",
    ),
    Fault(
        name="what a member forwards to its list is expanded again",
        rule="members get a message once",
        file="reception/intake.py",
        edits=(
            (
                "            if any(came_by(section, names, address) for address in lists):\n",
                "            if not names:\n",
            ),
        ),
        test="delivery/test_lists.py::test_what_a_member_forwards_to_its_list_is_refused",
    ),
    Fault(
        name="a damaged message is expanded",
        rule="nothing leaves whose digest was not compared",
        file="delivery/lists.py",
        edits=(("        if finding is Finding.DAMAGED:\n", "        if finding is None:\n"),),
        test="delivery/test_lists.py::test_a_damaged_message_is_not_expanded",
    ),
    Fault(
        name="a recipients file that became wrong empties the book",
        rule="a bad file changes nothing",
        file="reception/recipients.py",
        edits=(
            (
                "        wrong = str(error)\n",
                "        wrong = str(error)\n"
                "        self._book = read_recipients(Path('/dev/null'), self._limits)\n",
            ),
        ),
        test="reception/test_recipient_files.py::test_a_changed_file_counts_and_a_bad_one_changes_nothing",
    ),
    Fault(
        name="a changed recipients file is read while everybody waits",
        rule="SMTP goes on while a file is read; the book from before counts meanwhile",
        file="reception/recipients.py",
        edits=(("            loop = asyncio.get_running_loop()\n", "            raise RuntimeError\n"),),
        test="reception/test_recipient_files.py"
        "::test_the_loop_goes_on_and_the_book_from_before_counts_while_a_file_is_read",
    ),
    Fault(
        name="an invalid recipients file is read again each second",
        rule="a file is read again when it changes",
        file="reception/recipients.py",
        edits=(("if isinstance(error, OSError):", "if True:"),),
        test="reception/test_recipient_files.py::test_a_bad_file_is_read_once_until_it_changes",
    ),
)

_ALONE = "faults.py::test_a_fault_alone_is_found_as_what_it_is"

LISTS_AUDITED = (
    *in_audit(
        "core/reported.py",
        (
            "a list is settled though nobody made the message to its members",
            "the members of a list are owed",
            "        if event.kind is Kind.EXPAND and event.reference not in made:",
            "        if event.kind is Kind.EXPAND and not event.reference:",
            _ALONE + "[members-lost]",
        ),
        (
            "a log with a gap accuses whoever expanded a list",
            "a log with a gap accuses nobody",
            "            what = Class.UNPROVEN_LOSS if untold else Class.LOST",
            "            what = Class.LOST",
            "removals.py::test_a_row_that_is_missing_is_seen_and_held_against_no_node[given back]",
        ),
    ),
    *in_audit(
        "core/events.py",
        (
            "the message to members begins nowhere",
            "the members of a list are owed",
            "Kind.SENT_AGAIN, Kind.JOURNAL, Kind.MEMBERS}",
            "Kind.SENT_AGAIN, Kind.JOURNAL}",
            _ALONE + "[member-lost]",
        ),
        (
            "a list that was expanded is still owed",
            "no false alarm",
            "Kind.REMOVE, Kind.EXPAND}",
            "Kind.REMOVE}",
            _ALONE + "[expanded]",
        ),
    ),
)
