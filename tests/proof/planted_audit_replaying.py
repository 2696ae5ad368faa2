"""Faults in what became of a message in one database, on another server, or by a promotion."""

from __future__ import annotations

from .planting import in_audit

_LOST = "a message that is lost is found"
_DOUBLE = "a second delivery is found"
_CLEAN = "no false alarm"
_GAPS = "what is missing gives no proof"
REPLAYING = (
    *in_audit(
        "core/replay.py",
        (
            "a delivery leaves the message where it is",
            _CLEAN,
            "    trace.left -= named\n",
            "",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "a delivery takes all recipients away",
            _LOST,
            "    trace.left -= named\n",
            "    trace.left.clear()\n",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[partially-lost]",
        ),
        (
            "a message may be received twice",
            _GAPS,
            '                trace.contradict("received twice", index)',
            "                pass",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "a copy may come twice",
            _GAPS,
            (
                "            if trace.role is not Role.NONE and trace.left and not inherited:\n"
                '                trace.contradict("a copy came'
            ),
            (
                "            if trace.role is None and trace.left:\n"
                '                trace.contradict("a copy came'
            ),
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "a copy that was damaged stays so",
            _CLEAN,
            "    if _renews(event):\n        trace.sound(index)\n",
            "",
            "good_copies.py::test_it_is_exposed_until_a_good_copy_takes_its_place",
        ),
        (
            "who gives a copy has a better one by that",
            _LOST,
            "            return event.peer != event.node\n",
            "            return True\n",
            "good_copies.py::test_it_is_exposed_until_a_good_copy_takes_its_place",
        ),
        (
            "ownership that is taken makes a damaged copy good",
            _LOST,
            '            return event.reason != "taken"',
            "            return True",
            "good_copies.py::test_ownership_that_is_taken_makes_no_damaged_copy_good",
        ),
        (
            "rows that could not be believed vanish",
            _CLEAN,
            "    elif trace.damage is Damage.ROWS:\n",
            "    elif trace.damage is Damage.ROWS and not events:\n",
            "good_copies.py::test_rows_that_could_not_be_believed_are_neither_vanished_nor_a_contradiction",
        ),
        (
            "what follows rows that could not be believed contradicts them",
            _CLEAN,
            "    inherited |= trace.damage is Damage.ROWS\n",
            "",
            "good_copies.py::test_rows_that_could_not_be_believed_are_neither_vanished_nor_a_contradiction",
        ),
        (
            "TRANSFER may stand alone",
            _GAPS,
            '        trace.contradict("TRANSFER without the copy that is kept", index)',
            "        pass",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "ownership may end without TRANSFER",
            _GAPS,
            '                trace.contradict("ownership ended without TRANSFER", index)',
            "                pass",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "a copy that was not there may change its owner",
            _GAPS,
            '                trace.contradict("a copy changed its owner that was not there", index)',
            "                pass",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "who does not own may hand over",
            _GAPS,
            '                trace.contradict("TRANSFER of what the node did not own", index)',
            "                pass",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "recipients may be others than were left",
            _GAPS,
            "    elif trace.left != named:",
            "    elif not trace.left:",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "what was not there may be let go",
            _GAPS,
            '                trace.contradict("a copy was let go that was not there", index)',
            "                pass",
            "verdicts.py::test_rows_of_one_node_that_cannot_follow_each_other_are_told",
        ),
        (
            "who holds no copy may promote",
            _LOST,
            (
                "            if trace.role is not Role.SHADOW and not inherited:\n"
                "                trace.ownerless.append(index)"
            ),
            (
                "            if trace.role is None and not inherited:\n"
                "                trace.ownerless.append(index)"
            ),
            "verdicts.py::test_a_node_that_promotes_what_it_does_not_hold_is_named",
        ),
        (
            "any snapshot that ever listed it will do",
            _LOST,
            "event.kind is Kind.LOAD and begin <= event.sequence < end for",
            "event.kind is Kind.LOAD for",
            "verdicts.py::test_what_an_earlier_snapshot_listed_and_the_last_one_does_not_vanished",
        ),
        (
            "rows after the last snapshot are not looked at",
            _CLEAN,
            "        if last.sequence > end:",
            "        if last.sequence > end + 10**9:",
            "ends.py::test_a_file_may_end_before_the_reception_of_what_is_copied[True-0]",
        ),
        (
            "what is gone from a snapshot is open",
            _LOST,
            "            trace.ending = Ending.VANISHED",
            "            trace.ending = Ending.TAIL",
            "ends.py::test_a_loss_after_a_disk_was_lost_is_a_loss",
        ),
        (
            "what a lost disk had is judged by an old snapshot",
            _CLEAN,
            "    elif trace.database.lost or _overwritten(trace.database, last):",
            "    elif _overwritten(trace.database, last):",
            (
                "ends.py::test_what_may_have_been_delivered_in_the_lost_end_of_a_log_is_neither_lost_"
                "nor_proven[alone]"
            ),
        ),
        (
            "what was given up is judged by a snapshot of the life that went on",
            _CLEAN,
            "    elif trace.database.lost or _overwritten(trace.database, last):",
            "    elif trace.database.lost:",
            "verdicts.py::test_a_database_that_was_set_back_goes_on_with_the_life_that_began_last",
        ),
        (
            "what is in front of a log is held against it",
            _CLEAN,
            (
                "    inherited = trace.role is Role.NONE and not trace.entered and not "
                "trace.database.from_start"
            ),
            "    inherited = False",
            "ends.py::test_what_was_received_in_files_that_are_deleted_since_is_no_violation[clean]",
        ),
        (
            "what comes late in a log is taken as found",
            _GAPS,
            (
                "    inherited = trace.role is Role.NONE and not trace.entered and not "
                "trace.database.from_start"
            ),
            "    inherited = trace.role is Role.NONE and not trace.entered",
            "verdicts.py::test_a_node_that_delivers_what_it_does_not_own_is_named[mx3]",
        ),
    ),
    *in_audit(
        "core/promotions.py",
        (
            "a database that is at hand and whole is gone",
            _GAPS,
            (
                "            if former.ends:\n"
                '                return Class.FALSE_PROMOTION, "that database is the only'
            ),
            (
                "            if former is None:\n"
                '                return Class.FALSE_PROMOTION, "that database is the only'
            ),
            (
                "verdicts.py::test_a_promotion_is_judged_by_the_owners_own_log[database-replaced-2-pr"
                "omoted-falsely]"
            ),
        ),
        (
            "an owner that sent it as well is no sign",
            _GAPS,
            "            if again:\n",
            "            if again is None:\n",
            "faults.py::test_a_fault_alone_is_found_as_what_it_is[false-promotion]",
        ),
        (
            "a handover that the owner never made is rightful",
            _GAPS,
            "            if any(one.epoch == resubmit.epoch for one in given):",
            "            if given:",
            ("verdicts.py::test_a_promotion_is_judged_by_the_owners_own_log[handed-over-3-promoted-falsely]"),
        ),
    ),
    *in_audit(
        "core/exchange.py",
        (
            "in Exchange's logs nothing is missed",
            _LOST,
            "    if not missing or not begun:",
            "    if missing or not begun:",
            "exchange.py::test_logs_of_each_generation_are_read_by_their_own_fields[CRLF-2010]",
        ),
        (
            "in Exchange's logs nothing is doubled",
            _DOUBLE,
            "if count > 1))",
            "if count > 2))",
            "exchange.py::test_exchanges_events_have_their_class",
        ),
        (
            "in Exchange's logs SEND inside the organisation is an end",
            _LOST,
            "            if not inside or event.kind is not Kind.SEND:",
            "            if event:",
            "exchange.py::test_a_message_that_two_servers_handled_is_one_message",
        ),
    ),
)
