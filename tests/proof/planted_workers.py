"""Faults in how the workers of a node are named and believed, and in what is known of their number."""

from __future__ import annotations

from .planting import Fault

_MEMBERS = "service/test_workers_as_members.py::"
_SAID = "service/test_workers_announced.py::"
_SETTINGS = "settings/test_worker_settings.py::"
_VOUCHES = "a member is the one whose node its certificate names"

WORKERS = (
    Fault(
        name="a certificate that names a worker shows it",
        rule=_VOUCHES,
        file="members/answering.py",
        edits=(
            ("(node_of(theirs.name) not in names", "(names.isdisjoint({theirs.name, node_of(theirs.name)})"),
        ),
        test=f"{_MEMBERS}test_the_certificate_of_a_node_vouches_for_its_workers_alone",
    ),
    Fault(
        name="a worker that is called has to show a certificate of its own",
        rule=_VOUCHES,
        file="smtp/members/client.py",
        edits=(("server_hostname=node_of(address.name)", "server_hostname=address.name"),),
        test=f"{_MEMBERS}test_a_member_is_called_only_where_the_certificate_is_that_of_its_node",
    ),
    Fault(
        name="clients see which worker answers",
        rule="clients and next hops see the node's name alone",
        file="service/connectors.py",
        edits=(("        hostname=node_of(node.name),\n", "        hostname=node.name,\n"),),
        test=f"{_MEMBERS}test_strangers_and_next_hops_see_the_name_of_the_node",
    ),
    Fault(
        name="a member speaks for another node",
        rule="the first worker of a node says how many workers it has, and nobody else",
        file="service/workers.py",
        edits=(("        if node != member or ", "        if "),),
        test=f"{_SAID}test_a_node_speaks_for_itself_alone_and_by_its_first_worker",
    ),
    Fault(
        name="what a node said is not kept",
        rule="what a node says of its workers is durable before they are members",
        file="service/workers.py",
        edits=(
            (
                "await self._node.database.transact(lambda ledger: node_workers.keep(ledger, member, count))",
                "pass",
            ),
        ),
        test=f"{_SAID}test_what_a_node_said_stays_over_a_restart_and_counts_before_the_settings_file",
    ),
    Fault(
        name="a worker that is waited for is forgotten at a restart",
        rule="a worker that goes is a member until nothing is held for it",
        file="service/workers.py",
        edits=(
            ("        if kept:\n            self._node.membership.renew()\n", ""),
            ("        if self._node.membership.counts:  # only now", "        if False:  # only now"),
        ),
        test=f"{_SAID}test_a_worker_that_goes_is_waited_for_over_a_restart_of_who_holds_for_it",
    ),
    Fault(
        name="a worker leaves while a copy is held for it",
        rule="a worker that goes is a member until nothing is held for it",
        file="service/membership.py",
        edits=(("if name not in over - held]", "if name not in over]"),),
        test=f"{_SAID}test_a_worker_that_goes_is_a_member_until_nothing_is_held_for_it",
    ),
    Fault(
        name="each worker sends as much as the node may",
        rule="what a node may do at most is divided among its workers",
        file="settings/workers.py",
        edits=(("    return max(1, whole // of + (number <= whole % of))\n", "    return whole\n"),),
        test=f"{_SETTINGS}test_rates_and_room_of_a_node_are_divided_among_its_workers",
    ),
    Fault(
        name="the ports of workers meet other listeners",
        rule="each worker has a port of its own for members",
        file="settings/worker_checks.py",
        edits=(("        if first and first < listen.port <= last:\n", "        if False:\n"),),
        test=f"{_SETTINGS}test_ports_of_workers_may_not_be_taken_by_other_listeners",
    ),
)
