"""Faults against rules of the documents on Exchange that no other planted fault breaks."""

from __future__ import annotations

from .planting import Fault

DOCUMENTS: tuple[Fault, ...] = (
    Fault(
        name="every failed attempt is the end of a holder",
        rule="the talk between the servers is the heartbeat",
        file="core/ownership/heartbeat.py",
        edits=(
            (
                "        if failures >= policy.holder_loss_heartbeats:\n",
                "        if failures > policy.holder_loss_heartbeats:\n",
            ),
        ),
        test="core/ownership/test_heartbeat.py::test_a_holder_is_lost_after_a_few_heartbeats",
    ),
    Fault(
        name="anybody may speak as a member",
        rule="the right to XSHADOW is per connector",
        file="members/answering.py",
        edits=(
            (
                "        return client.certificate is not None or self._secured(client)\n",
                "        return True\n",
            ),
        ),
        test="smtp/test_member_session.py::test_outside_the_secured_networks_the_verbs_are_unknown",
    ),
    Fault(
        name="whoever has a certificate is the member that it names itself",
        rule="the right to XSHADOW is per member",
        file="members/answering.py",
        edits=(
            (
                " or (node_of(theirs.name) not in names and not self._secured(client)):\n",
                ":\n",
            ),
        ),
        test="smtp/test_member_session.py::test_a_member_is_who_its_certificate_says_and_nobody_else",
    ),
    Fault(
        name="XSHADOW is offered though redundancy is disabled",
        rule="what is disabled is never offered to a stranger",
        file="members/answering.py",
        edits=(("return client.certificate is not None or self._secured(client)", "return True"),),
        test="smtp/test_member_session.py::test_with_redundancy_disabled_nothing_is_offered",
    ),
    Fault(
        name="members are offered XSHADOW though redundancy is disabled",
        rule="what is disabled is offered to nobody",
        file="smtp/members/session.py",
        edits=(("keeps=self.answering.keeps", "keeps=True"),),
        test="smtp/test_member_session.py::test_with_redundancy_disabled_members_still_talk",
    ),
    Fault(
        name="nothing is said of a node that rejects and has no members",
        rule="one server alone cannot protect mail",
        file="settings/warnings.py",
        edits=(('"answered 451 4.4.0" if policy.reject_message_on_shadow_failure else ', ""),),
        test="settings/test_settings_checks.py::test_rejecting_without_members_is_a_warning_and_not_an_error",
    ),
    Fault(
        name="a message without a copy is accepted, whatever policy says",
        rule="policy decides about messages without a copy",
        file="core/reception/redundancy.py",
        edits=(("(last_resort and not policy.reject_message_on_shadow_failure)\n", "last_resort\n"),),
        test="reception/test_intake.py::test_with_no_member_at_hand_policy_decides[True]",
    ),
    Fault(
        name="a message without a copy is never accepted",
        rule="by default a message without a copy is accepted",
        file="core/reception/redundancy.py",
        edits=(
            ("answered or (last_resort and not policy.reject_message_on_shadow_failure)\n", "answered\n"),
        ),
        test="reception/test_intake.py::test_by_default_a_message_nobody_holds_is_accepted_exposed",
    ),
    Fault(
        name="the shadow session waits for the content",
        rule="the shadow session is opened while the sender's is active",
        file="reception/intake.py",
        edits=(
            (
                "        if self.policy.shadow_redundancy_enabled:\n            self._shadows",
                "        if False:\n            self._shadows",
            ),
        ),
        test="reception/test_shadow_session.py::test_the_shadow_session_is_opened_at_mail",
    ),
    Fault(
        name="a message whose sender has left is dropped",
        rule="a message that has a copy is accepted though its sender has gone",
        file="smtp/receiving/content.py",
        edits=(
            (
                "await self._sink.finish()\n",
                'await __import__("asyncio").wait_for(self._sink.finish(), 0.01)\n',
            ),
        ),
        test="smtp/test_receive_session.py::test_a_message_is_finished_though_its_client_vanished",
    ),
    Fault(
        name="a failed heartbeat is logged without its cause",
        rule="a heartbeat that fails is logged with its step and its cause",
        file="members/link.py",
        edits=(
            (
                "            error=failure.error,\n            since=",
                '            error="",\n            since=',
            ),
        ),
        test="members/test_link.py::test_a_heartbeat_that_fails_is_logged_with_its_step_and_its_cause",
    ),
    Fault(
        name="freed pages stay in the file",
        rule="the database gives the room of what is gone back to the file system",
        file="database/transport.py",
        edits=(("PRAGMA incremental_vacuum(2000); ", ""),),
        test="database/test_database_opening.py::test_the_file_shrinks_when_messages_are_gone",
    ),
    Fault(
        name="a peer is believed from any network",
        rule="without a certificate a peer is believed from its secured networks alone",
        file="reception/hops.py",
        edits=(("if within(client.address, networks)}", "if networks}"),),
        test="reception/test_hops.py::test_outside_the_secured_networks_nobody_sees_anything_of_it",
    ),
    Fault(
        name="rejecting is meant though redundancy is off",
        rule="rejecting means something with redundancy enabled only",
        file="settings/warnings.py",
        edits=(
            (
                "if policy.reject_message_on_shadow_failure and not policy.shadow_redundancy_enabled:",
                "if not policy:",
            ),
        ),
        test="settings/test_settings_checks.py::test_rejecting_means_something_with_redundancy_enabled_only",
    ),
    Fault(
        name="nothing is a duplicate",
        rule="the same message is delivered once",
        file="mailbox/receiving.py",
        edits=(
            (
                "                known = await receiver.table.known(keys, receiver.clock())\n",
                "                known: frozenset[Delivered] = frozenset()\n",
            ),
        ),
        test="mailbox/test_mailbox_server.py::test_the_same_message_is_delivered_once[inside]",
    ),
    Fault(
        name="what the store behind LMTP took is taken again",
        rule="the same message is delivered once",
        file="mailbox/receiving.py",
        edits=(
            (
                "                known = await receiver.table.known(keys, receiver.clock())\n",
                "                known: frozenset[Delivered] = frozenset()\n",
            ),
        ),
        test="mailbox/test_lmtp_store.py::test_what_the_store_took_is_remembered_and_dropped_when_it_comes_again",
    ),
    Fault(
        name="the Message-ID alone says what is the same",
        rule="what has another time is another message",
        file="mailbox/receiving.py",
        edits=(("Delivered(message_id, date, mailbox) for", 'Delivered(message_id, "", mailbox) for'),),
        test="mailbox/test_mailbox_server.py::test_message_id_and_date_say_what_is_the_same[another time]",
    ),
    Fault(
        name="a delivery is remembered for ever",
        rule="entries count for the tracking time",
        file="database/delivered_to.py",
        edits=(("        since = _milliseconds(now - self._track)\n", "        since = 0\n"),),
        test="database/test_delivered_to.py::test_a_delivery_is_known_until_its_time_is_up",
    ),
    Fault(
        name="duplicates are tracked as long as anybody likes",
        rule="at most 49 days",
        file="database/delivered_to.py",
        edits=(
            (
                "        if not timedelta(0) <= track <= MOST_TRACKING:\n",
                "        if not timedelta(0) <= track:\n",
            ),
        ),
        test="database/test_delivered_to.py::test_more_than_49_days_are_refused",
    ),
    Fault(
        name="a copy goes with the first of its forks",
        rule="the copy is not released before all forks are done",
        file="core/reception/holding.py",
        edits=(
            (
                "    if not after.unsettled:\n        after = settled_now(after, now)\n    reason",
                "    after = settled_now(after, now)\n    reason",
            ),
        ),
        test="core/reception/test_holding.py::test_a_half_delivered_message_is_half_discarded",
    ),
    Fault(
        name="a takeover is forgotten with the other events",
        rule="takeovers stay until they are acknowledged",
        file="database/queue.py",
        edits=(('SQL["expire_events"], (', 'SQL["expire_events"].replace("kind", "\'\'"), ('),),
        test="database/test_database_queue.py::test_what_need_not_be_remembered_is_forgotten_but_not_a_takeover",
    ),
    Fault(
        name="Safety Net is empty at once",
        rule="settled messages stay for the hold time",
        file="core/safety_net/expiry.py",
        edits=((" or copy.settled_at > ends.before(policy.safety_net_hold_time):\n", ":\n"),),
        test="core/safety_net/test_expiry_rules.py::test_a_settled_copy_goes_after_the_hold_time_and_its_outcome_stays",
    ),
    Fault(
        name="a shadow copy stays for ever",
        rule="an unacknowledged copy expires in the end",
        file="core/safety_net/expiry.py",
        edits=(
            (
                "not copy.damaged and not suspended and old:\n",
                "False:\n",
            ),
        ),
        test="safety_net/test_expiry.py::test_a_shadow_copy_that_nobody_ever_settled_goes_in_the_end",
    ),
    Fault(
        name="a message expires a moment late",
        rule="MessageExpirationTimeout is how long a message may wait",
        file="core/delivery/retry.py",
        edits=(("    return _aware(now) >= expires_at(", "    return _aware(now) > expires_at("),),
        test="core/delivery/test_retry.py::test_a_message_expires_at_the_end_of_its_time_and_not_before",
    ),
    Fault(
        name="an inactivity timeout may be as long as the connection",
        rule="the inactivity timeout is the smaller one",
        file="settings/checks.py",
        edits=(("    if silence >= session:\n", "    if silence > session:\n"),),
        test="settings/test_settings_checks.py::test_an_inactivity_timeout_has_to_be_below_the_connection_timeout",
    ),
    Fault(
        name="dots are not doubled",
        rule="a relay changes no octet of a content",
        file="smtp/sending/transaction.py",
        edits=(
            ("                    pending = stuffer.feed(block)\n", "                    pending = block\n"),
        ),
        test="delivery/test_queue.py::test_a_message_leaves_octet_for_octet",
    ),
    Fault(
        name="LocalOnly needs an attempt in other sites",
        rule="the preference and the counts are judged together",
        file="settings/checks.py",
        edits=(
            (
                " not any(getattr(policy, key) for key in keys):\n",
                " not all(getattr(policy, key) for key in _RETRIES.values()):\n",
            ),
        ),
        test="settings/test_settings_checks.py::test_attempts_must_be_left_for_the_preferred_sites_and_only_for_those[local_only-counts1-True]",
    ),
    Fault(
        name="no retry is for a glitch",
        rule="retries in the documented order",
        file="core/delivery/retry.py",
        edits=(
            (
                "    if failures <= policy.queue_glitch_retry_count:\n",
                "    if failures < policy.queue_glitch_retry_count:\n",
            ),
        ),
        test="core/delivery/test_retry.py::test_glitch_retries_come_first_then_transient_ones_then_the_long_interval_for_ever",
    ),
    Fault(
        name="each look tells of the delay again",
        rule="the sender is told of a delay once",
        file="core/delivery/retry.py",
        edits=(
            (
                "    if recipient.settled or recipient.delay_notified or expired(",
                "    if recipient.settled or expired(",
            ),
        ),
        test="core/delivery/test_retry.py::test_the_delay_is_told_once_after_its_timeout",
    ),
    Fault(
        name="a hop gets as many sessions as there is mail",
        rule="sessions to one next hop are limited",
        file="delivery/attempt.py",
        edits=((" else policy.max_per_domain_outbound_connections\n", " else 10_000\n"),),
        test="delivery/test_queue.py::test_a_hop_has_its_number_of_sessions",
    ),
    Fault(
        name="the sender hears of what was given back",
        rule="no reports about resubmitted mail",
        file="core/safety_net/resubmission.py",
        edits=(('one.next_hop, ("NEVER",), one.orcpt', "one.next_hop, (), one.orcpt"),),
        test="core/safety_net/test_resubmission.py::test_nobody_gets_a_report_about_it[failed]",
    ),
    Fault(
        name="Safety Net that is off takes requests",
        rule="a hold time of 15 s is the off switch",
        file="core/safety_net/requesting.py",
        edits=(
            ("    if policy.safety_net_hold_time <= OFF:\n", "    if policy.safety_net_hold_time < OFF:\n"),
        ),
        test="core/safety_net/test_requesting.py::test_safety_net_that_is_switched_off_takes_no_request",
    ),
    Fault(
        name="quotes in a field stand as they are",
        rule="the log is quoted as Exchange quotes",
        file="tracking/format.py",
        edits=(("shown.replace('\"', '\"\"')", "shown"),),
        test="tracking/test_tracking_format.py::test_a_field_is_quoted_only_if_it_holds_a_comma_or_a_quote",
    ),
    Fault(
        name="an edge connector has the limits of a mailbox server",
        rule="Edge servers have timeouts of 1 and 5 min",
        file="settings/schema.py",
        edits=(("timedelta(minutes=1 if _is_edge(data) else 5)", "timedelta(minutes=5)"),),
        test="settings/test_route_settings.py::test_a_profile_has_the_defaults_of_exchange[given2-5-1]",
    ),
    Fault(
        name="a next hop may be silent as long as it likes",
        rule="ConnectionInactivityTimeOut of Send connectors",
        file="smtp/sending/hop.py",
        edits=(('"final_dot": silence, "idle": silence', '"final_dot": 600.0, "idle": 600.0'),),
        test="settings/test_route_settings.py::test_the_silence_of_a_next_hop_has_a_limit[20m-1200-300-120]",
    ),
)
