"""Faults in whom an owner asks for a copy, how often, and what it makes of a refusal."""

from __future__ import annotations

from .planting import Fault

_ONLY = "the only candidate left is never skipped"
_COUNTED = "attempts are counted as documented, and spaced"
_REMEMBERED = "what failed for one message is remembered for the next"
_COPY = "a copy that is refused is not a member that is gone"
_ALL = "a holder takes every envelope that an owner took"
_SERVERS = "core/reception/test_shadow_servers.py::"

ASKING = (
    Fault(
        name="a member that failed is left out though nobody else is left",
        rule=_ONLY,
        file="core/reception/shadow_servers.py",
        edits=(
            (
                "    if turn := healthy_turn(order, attempts, skipped):\n        return turn\n",
                "    return healthy_turn(order, attempts, skipped)\n",
            ),
        ),
        test="reception/test_outages.py::"
        "test_while_its_port_refuses_messages_fail_and_no_longer_than_a_second_after[exposed]",
    ),
    Fault(
        name="a member that failed is asked before one that did not",
        rule="one dead peer slows no message while there is another candidate",
        file="core/reception/shadow_servers.py",
        edits=(("if not (name in skipped or asked[name])", "if not asked[name]"),),
        test=f"{_SERVERS}test_a_member_that_failed_lately_is_asked_when_no_other_one_is_left",
    ),
    Fault(
        name="a broken session counts as an attempt",
        rule="a broken session is replaced at once",
        file="core/reception/shadow_servers.py",
        edits=(("    counted.subtract(broken)\n", ""),),
        test=f"{_SERVERS}test_a_member_whose_sessions_all_break_is_asked_one_time_more_than_others",
    ),
    Fault(
        name="every broken session is replaced without being counted",
        rule=_COUNTED,
        file="core/reception/shadow_servers.py",
        edits=(
            (
                "counted = Counter(attempt.name for attempt in attempts)",
                "counted = Counter(a.name for a in attempts if a.concern is not Concern.SESSION)",
            ),
            ("    counted.subtract(broken)\n", ""),
        ),
        test=f"{_SERVERS}test_a_member_whose_sessions_all_break_is_asked_one_time_more_than_others",
    ),
    Fault(
        name="members that failed are asked again without a pause",
        rule=_COUNTED,
        file="running.py",
        edits=(("                await asyncio.sleep(length.total_seconds())\n", ""),),
        test="reception/test_outages.py::"
        "test_the_only_member_is_tried_as_often_as_documented_with_pauses[default-2]",
    ),
    Fault(
        name="an attempt is made past the time cap",
        rule=_COUNTED,
        file="reception/two_copies.py",
        edits=(("and clock() + turn.pause < deadline", "and clock() < deadline"),),
        test="reception/test_two_copies.py::test_nobody_waits_for_an_attempt_that_would_come_too_late",
    ),
    Fault(
        name="each offer of a message has the same rank",
        rule="a database is one holder, with the rank that it was offered last",
        file="reception/two_copies.py",
        edits=(("offer(arrival, member, len(attempts) + 1)", "offer(arrival, member, 1)"),),
        test="reception/test_two_copies.py::test_the_only_member_is_asked_again_after_a_pause_by_the_next_rank",
    ),
    Fault(
        name="in a boundary of one site the preference counts",
        rule="in a boundary of one site the preference is ignored",
        file="core/reception/shadow_servers.py",
        edits=(("all(member.site == own.site for member in others)", "not others"),),
        test=f"{_SERVERS}"
        "test_in_a_boundary_of_one_site_the_preference_is_ignored_and_the_local_count_applies[remote_only]",
    ),
    Fault(
        name="no attempt in a boundary of one site is no error",
        rule="in a boundary of one site the preference is ignored",
        file="settings/checks.py",
        edits=(("    if sites == {settings.site}:\n", "    if not sites:\n"),),
        test="settings/test_settings_checks.py::"
        "test_where_all_members_are_in_one_site_the_local_count_applies_whatever_the_preference[remote_only]",
    ),
    Fault(
        name="the members' connector refuses what it would refuse to senders",
        rule=_ALL,
        file="smtp/members/session.py",
        edits=(
            (
                '        """Refuse no recipient: a holder takes every envelope that its owner took."""\n',
                "        super().judge(rcpt)\n",
            ),
        ),
        test="members/test_every_envelope.py::"
        "test_what_a_sender_is_taken_from_or_for_can_be_copied_handed_over_promoted_and_delivered",
    ),
    Fault(
        name="senders route by the local part of their recipients",
        rule="nobody is an open relay by proxy",
        file="smtp/receiving/session.py",
        edits=(("        refuse_routing(rcpt)\n", "        pass\n"),),
        test="smtp/test_receive_dialogues.py::test_the_connector_answers_as_the_dialogue_says[addresses]",
    ),
    Fault(
        name="a refused copy counts against its member",
        rule=_COPY,
        file="members/boundary.py",
        edits=(("        elif attempt.concern is Concern.MEMBER:\n", "        else:\n"),),
        test="members/test_boundary.py::"
        "test_a_copy_that_is_refused_or_a_session_that_broke_says_nothing_of_the_member[Concern.COPY]",
    ),
    Fault(
        name="a member without room refuses this copy alone",
        rule=_COPY,
        file="smtp/members/offer.py",
        edits=(
            (
                'return Concern.MEMBER if not refusal.permanent and subject == "3" else Concern.COPY',
                "return Concern.COPY",
            ),
        ),
        test="smtp/test_member_client.py::"
        "test_a_refusal_says_whether_it_speaks_of_the_member_or_of_the_copy"
        "[452 4.3.1 Insufficient system resources-Concern.MEMBER]",
    ),
    Fault(
        name="a session that ended counts against its member",
        rule="a broken session is replaced at once",
        file="smtp/members/offer.py",
        edits=(("if isinstance(failed, MemberGone) else Concern.MEMBER", "if False else Concern.MEMBER"),),
        test="smtp/test_member_client.py::"
        "test_a_session_that_ends_says_nothing_of_the_member_and_one_that_is_silent_does",
    ),
    Fault(
        name="the other sessions with a member are trusted when one has ended",
        rule="a broken session is replaced at once",
        file="members/pool.py",
        edits=(("                self._distrust(attempt.name)\n", "                pass\n"),),
        test="smtp/test_member_client.py::test_when_a_session_ends_the_others_with_that_member_are_not_trusted",
    ),
    Fault(
        name="each message waits for a member that failed as long as the first one",
        rule="one dead peer slows no message while there is another candidate",
        file="members/pool.py",
        edits=(("asyncio.timeout(self._boundary.patience(name, seconds()))", "asyncio.timeout(None)"),),
        test="smtp/test_member_client.py::test_a_member_that_failed_lately_has_a_second_to_be_greeted",
    ),
    Fault(
        name="who refused a copy is offered it twice a second",
        rule=_COPY,
        file="members/repair.py",
        edits=(
            (
                "copy_again(message_id, whom, self._clock, lately)",
                "copy_again(message_id, whom, self._clock)",
            ),
            ("candidates.healthy(lately) is None", "candidates.healthy(()) is None"),
        ),
        test="members/test_repair.py::"
        "test_a_copy_that_is_refused_says_nothing_of_its_member_and_why_is_remembered",
    ),
    Fault(
        name="every message waits for a member that is down",
        rule=_REMEMBERED,
        file="core/reception/shadow_servers.py",
        edits=(("if not (asked[name] and name in spent))", "if name)"),),
        test="reception/test_remembered_failures.py::test_of_a_hundred_messages_the_first_one_waits",
    ),
    Fault(
        name="a member that is down is not asked at all",
        rule=_ONLY,
        file="core/reception/shadow_servers.py",
        edits=(("if not (asked[name] and name in spent))", "if name not in spent)"),),
        test="reception/test_remembered_failures.py::"
        "test_every_member_that_is_left_is_asked_once_for_every_message",
    ),
    Fault(
        name="a member that is back is still asked once only",
        rule=_COUNTED,
        file="members/boundary.py",
        edits=(("            del self._spent[name]\n", "            pass\n"),),
        test="reception/test_remembered_failures.py::"
        "test_a_member_that_is_back_is_used_at_once_and_tried_as_often_as_documented",
    ),
    Fault(
        name="a member without room is waited for because it answers",
        rule=_REMEMBERED,
        file="members/boundary.py",
        edits=(("and not spent.refuses:\n", "and spent:\n"),),
        test="reception/test_remembered_failures.py::"
        "test_a_member_that_takes_no_copies_is_not_waited_for_because_it_answers_other_questions",
    ),
    Fault(
        name="its own failure takes a message's attempts away",
        rule=_COUNTED,
        file="members/boundary.py",
        edits=(
            (
                "known.policy, self.spent)\n",
                "known.policy, self.spent | known.skipped(self.began))\n",
            ),
        ),
        test="reception/test_remembered_failures.py::test_of_a_hundred_messages_the_first_one_waits",
    ),
    Fault(
        name="while heartbeats fail the memory ends all the same",
        rule=_REMEMBERED,
        file="members/boundary.py",
        edits=(
            (
                "or ((watch := self.watches.get(name)) and watch.failing_since is not None)\n",
                "\n",
            ),
        ),
        test="reception/test_remembered_failures.py::"
        "test_while_heartbeats_fail_too_no_later_message_waits_however_late_it_comes",
    ),
)
