"""Faults against rules of the specification that had no test of their own to fail."""

from __future__ import annotations

from .planting import Fault

_LINKS = "members/test_link.py::"
_INTAKE = "reception/test_intake.py::"

SPECIFIED: tuple[Fault, ...] = (
    Fault(
        name="whoever holds a copy owns it",
        rule="a node is primary for some messages and shadow for others",
        file="core/reception/holding.py",
        edits=(("            role=Role.SHADOW,\n", "            role=Role.PRIMARY,\n"),),
        test=_INTAKE + "test_a_node_owns_what_it_received_and_holds_what_others_did",
    ),
    Fault(
        name="mail from another relay has no second copy",
        rule="beyond the boundary shadowing begins again",
        file="reception/intake.py",
        edits=(
            (
                "        if self.policy.shadow_redundancy_enabled:\n            self._shadows",
                '        if self.policy.shadow_redundancy_enabled and not session.helo.startswith("mx"):\n'
                "            self._shadows",
            ),
        ),
        test=_INTAKE + "test_beyond_the_boundary_shadowing_begins_again",
    ),
    Fault(
        name="the member whose session is open is not offered the copy",
        rule="mail of any sender is shadowed",
        file="reception/intake.py",
        edits=(
            (
                "        whom = shadow.candidates.after if shadow is not None else _nobody\n",
                "        whom = _nobody\n",
            ),
        ),
        test=_INTAKE + "test_the_250_stands_for_two_copies",
    ),
    Fault(
        name="a copy is placed on the machine of its owner",
        rule="a copy is never on the hardware of its primary",
        file="core/reception/shadow_servers.py",
        edits=(
            (
                "    elsewhere = [member for member in others if member.host != own.host]\n",
                "    elsewhere = others\n",
            ),
        ),
        test="core/reception/test_redundancy.py::test_a_shadow_is_never_on_the_primarys_own_host",
    ),
    Fault(
        name="the own site is preferred",
        rule="the preference decides the sites and their order",
        file="core/reception/shadow_servers.py",
        edits=(("            return remote, local\n", "            return local, remote\n"),),
        test="core/reception/test_shadow_servers.py::test_the_preference_decides_the_sites_and_their_order",
    ),
    Fault(
        name="a member is asked once for a message",
        rule="the retry counts are numbers of attempts",
        file="core/reception/shadow_servers.py",
        edits=(
            (
                " if asked else 0) < sites.attempts:\n",
                " if asked else 0) < min(sites.attempts, len(sites.members)):\n",
            ),
        ),
        test="core/reception/test_shadow_servers.py::test_few_members_are_tried_as_often_as_there_are_attempts",
    ),
    Fault(
        name="a link that holds copies asks no oftener than the heartbeat",
        rule="the shadow server asks what became of its copies",
        file="members/link.py",
        edits=(("pause = self.policy.discard_poll_interval if busy else ", "pause = "),),
        test=_LINKS + "test_a_delivered_copy_moves_to_safety_net_within_the_poll_interval",
    ),
    Fault(
        name="silence promotes nothing",
        rule="what is held for an owner that is gone is promoted",
        file="core/ownership/heartbeat.py",
        edits=(("        ledger.apply(intend(copy, reason, now))\n", "        pass\n"),),
        test=_LINKS + "test_the_copies_of_an_owner_that_is_gone_too_long_are_promoted",
    ),
    Fault(
        name="nobody else is asked about a silent owner",
        rule="with a third machine silence alone does not promote",
        file="core/members/second_opinion.py",
        edits=(
            (
                "        return self.third and self.elsewhere.isdisjoint(answered)\n",
                "        return False\n",
            ),
        ),
        test="core/members/test_second_opinion.py::test_only_another_machine_shows_that_we_are_not_cut_off",
    ),
    Fault(
        name="a queue is handed over to the last of its holders",
        rule="a drain gives what it cannot deliver to a holder",
        file="core/ownership/handover.py",
        edits=(
            (
                "    to = min(holders, key=lambda holder: (holder.rank, holder.name))\n",
                "    to = max(holders, key=lambda holder: (holder.rank, holder.name))\n",
            ),
        ),
        test="core/ownership/test_handover.py::"
        "test_the_first_holder_that_can_be_reached_becomes_the_owner_and_we_its_holder",
    ),
    Fault(
        name="a shadow queue has one next hop",
        rule="a shadow queue for each next hop of the primary message",
        file="database/queue_views.py",
        edits=(
            (
                "tuple(ledger.tally.held_by_hop(owner))\n",
                "tuple(ledger.tally.held_by_hop(owner)[:1])\n",
            ),
        ),
        test="admin/test_admin_api.py::test_a_shadow_queue_is_named_after_its_primary_and_lists_its_next_hops",
    ),
    Fault(
        name="discard notifications go with the process",
        rule="discard notifications survive a restart",
        file="database/opening.py",
        edits=(
            (
                "    _check_lineages(ledger)\n",
                '    _check_lineages(ledger)\n    connection.execute("DELETE FROM discard_event")\n',
            ),
        ),
        test="database/test_database_ledger.py::test_discard_notifications_survive_a_restart",
    ),
    Fault(
        name="nobody sweeps the table of deliveries",
        rule="the DeliveredTo table is swept in the background",
        file="mailbox/server.py",
        edits=(("        self._sweeping = asyncio.create_task(self._sweep(table))\n", ""),),
        test="mailbox/test_mailbox_server.py::test_the_table_is_swept_while_the_server_runs",
    ),
    Fault(
        name="the metric of exposed messages stays at nothing",
        rule="exposure is shown",
        file="admin/metrics.py",
        edits=(('second copy.", counts.exposed)', 'second copy.", 0)'),),
        test="admin/test_admin_metrics.py::test_the_backlog_does_not_include_shadow_copies_and_safety_net",
    ),
    Fault(
        name="the status says nothing of exposure",
        rule="exposure is shown",
        file="cli/status.py",
        edits=(('    if answer["exposed"]:\n', "    if False:\n"),),
        test="cli/test_cli_view.py::test_status_shows_exposure_before_the_backlog_and_shadow_copies_apart",
    ),
    Fault(
        name="the hash of a file is made of nothing",
        rule="tracking files are closed once and hashed",
        file="tracking/files.py",
        edits=(("        self._hash.update(data)\n", ""),),
        test="tracking/test_tracking_files.py::test_the_footer_counts_the_rows_and_hashes_every_byte_before_it",
    ),
    Fault(
        name="a file that was closed is written to again",
        rule="tracking files are closed once and hashed",
        file="tracking/files.py",
        edits=(
            (
                "        closed = publish(self._directory, self.name.open, self.name.closed, self._folder)\n",
                "        closed = self._directory / self.name.closed\n"
                "        os.link(self._directory / self.name.open, closed)\n",
            ),
        ),
        test="tracking/test_tracking_files.py::test_a_file_has_a_dot_name_until_it_is_closed",
    ),
)
