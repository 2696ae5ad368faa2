"""Faults in what a node measures and traces, and in what it remembers of its crashes."""

from __future__ import annotations

from .planting import Fault

_POISON = "database/test_database_poison.py::"
_PROCESS = "service/test_poison.py::"
_TRACES = "tracking/test_traces.py::"
_TALLY = "database/test_tally.py::"

MEASURES = (
    Fault(
        name="one crash is enough to set a message aside",
        rule="a message is set aside after two crashes, not after one, which may have any cause",
        file="core/ownership/set_aside.py",
        edits=(("MOST_CRASHES = 2\n", "MOST_CRASHES = 1\n"),),
        test=_POISON + "test_two_crashes_set_a_message_aside_and_the_same_crash_counts_once",
    ),
    Fault(
        name="a crash counts at every start",
        rule="a crash counts once, however often its note is read",
        file="database/poison.py",
        edits=(
            (
                "    if meta.sound(run, COUNTED) == crash.note:\n",
                "    if meta.sound(run, COUNTED) == crash:\n",
            ),
        ),
        test=_POISON + "test_two_crashes_set_a_message_aside_and_the_same_crash_counts_once",
    ),
    Fault(
        name="a node that was killed counts as one that crashed",
        rule="SIGKILL, lack of memory and power cuts leave no note, and nothing counts without one",
        file="service/crashes.py",
        edits=(
            ("        if self._note:\n", "        if self._left:\n"),
            (
                "hashlib.sha256(self._note + self._stamp.encode()).hexdigest()",
                "hashlib.sha256().name + str(now)",
            ),
        ),
        test=_PROCESS + "test_what_was_in_hand_whenever_the_node_was_killed_is_never_set_aside",
    ),
    Fault(
        name="what an error leaves in hand is given back before it is counted",
        rule="what is in hand at an unhandled error is what the next start counts",
        file="in_hand.py",
        edits=(("        self._page = bytearray(SLOTS * _SLOT)\n\n\ndef", "        del self\n\n\ndef"),),
        test=_POISON + "test_what_is_in_hand_is_in_the_file_at_once_and_what_has_left_is_not",
    ),
    Fault(
        name="a message that was released keeps its crashes",
        rule="an operator's resume clears the crashes of a message",
        file="database/copies.py",
        edits=(('            self._run(SQL["forget_crashes"], (after.id,))\n', "            pass\n"),),
        test=_POISON + "test_resume_clears_the_count",
    ),
    Fault(
        name="a copy held for another member is set aside as poison",
        rule="only what this node would send is set aside as poison",
        file="core/ownership/set_aside.py",
        edits=((" or not copy.owned:\n", " or not copy.queued:\n"),),
        test=_POISON + "test_a_copy_held_for_another_member_stays_and_its_crashes_are_counted",
    ),
    Fault(
        name="spans wait for the collector without bound",
        rule="a collector that hangs costs spans, and no memory without bound",
        file="tracking/traces.py",
        edits=(("        if len(self._waiting) >= MOST_WAITING:\n", "        if not MOST_WAITING:\n"),),
        test=_TRACES + "test_a_collector_that_hangs_costs_spans_and_nobody_waits",
    ),
    Fault(
        name="each node makes traces of its own",
        rule="the id of a trace follows from the id of the message, so that all nodes agree",
        file="tracking/traces.py",
        edits=(('f"trace {message_id}"', 'f"{time.time_ns()}"'),),
        test=_TRACES + "test_all_nodes_agree_on_the_trace_and_what_follows_stands_below_the_reception",
    ),
    Fault(
        name="spans have addresses whatever the settings say",
        rule="spans have neither addresses nor subjects unless the settings say so",
        file="tracking/traces.py",
        edits=(("        if self._addresses:\n", "        if _ADDRESSES:\n"),),
        test=_TRACES + "test_a_span_has_no_address_and_no_subject_unless_the_settings_say_so",
    ),
    Fault(
        name="a message that comes in with an older id is not the oldest of its queue",
        rule="the oldest of a queue is found again after each change",
        file="database/tally.py",
        edits=(('"~") > copy.id:\n', '"~") == "~":\n'),),
        test=_TALLY + "test_the_oldest_of_a_queue_is_found_again_after_each_change",
    ),
    Fault(
        name="a recipient that is settled stays in the count of its queue",
        rule="queues by next hop are counted as they change, and the same by an opening",
        file="database/tally.py",
        edits=(("            before.recipients is after.recipients\n", "            before.recipients\n"),),
        test=_TALLY + "test_queues_by_next_hop_are_counted_as_they_change_and_the_same_by_an_opening",
    ),
)
