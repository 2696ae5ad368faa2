"""Faults in the choice of hosts, and in what the DNS is taken to say."""

from __future__ import annotations

from .planting import Fault

_SEVERAL = "delivery/test_several_hosts.py::"
_CORE = "core/delivery/test_hosts.py::"

HOSTS = (
    Fault(
        name="a host that failed is tried again for the next message",
        rule="a host that fails rests, for every next hop that uses it",
        file="core/delivery/hosts.py",
        edits=(
            (
                "failures=failures, rests_until=now + retry.after(failures, policy))",
                "failures=failures)",
            ),
        ),
        test=_SEVERAL + "test_a_host_rests_for_every_next_hop_that_uses_it",
    ),
    Fault(
        name="the first host that fails ends the attempt",
        rule="the next host is tried in the same attempt",
        file="delivery/attempt.py",
        edits=(
            (
                "several=search.several)\n                continue\n",
                "several=search.several)\n                break\n",
            ),
        ),
        test=_SEVERAL + "test_a_host_that_is_gone_rests_and_the_next_takes_the_message_at_once",
    ),
    Fault(
        name="a slow host takes all sessions",
        rule="mail for one host never waits behind another",
        file="core/delivery/hosts.py",
        edits=(("if how.sessions + _NOTHING < share * sessions", ""),),
        test=_SEVERAL + "test_mail_for_the_other_hosts_never_waits_for_a_slow_one",
    ),
    Fault(
        name="a less preferred host is drawn with the others",
        rule="hosts by preference",
        file="core/delivery/hosts.py",
        edits=(("if host.preference == best]", "]"),),
        test=_CORE + "test_a_less_preferred_host_has_its_turn_when_no_better_one_is_left",
    ),
    Fault(
        name="trouble with the DNS fails the recipient",
        rule="temporary trouble with the DNS is a delay, never a bounce",
        file="resolver.py",
        edits=(
            (
                '            raise DnsTrouble(f"{kind} of {name}: {why}") from error',
                '            raise DomainRefused(f"550 5.1.2 {kind} of {name}: {why}") from error',
            ),
        ),
        test=_SEVERAL + "test_trouble_with_the_dns_is_a_delay_with_its_reason_and_no_bounce",
    ),
    Fault(
        name="mail goes to a host that would hand it back",
        rule="hosts less preferred than this server are left out (RFC 5321 5.1)",
        file="core/delivery/mx.py",
        edits=(("if host.preference < ours)", "if host.preference <= ours)"),),
        test="test_resolver.py::test_a_definite_no_fails_the_recipient"
        "[ours.example.net-554 5.4.6 The mail for ours.example.net would come back to this server]",
    ),
    Fault(
        name="loopback addresses are strangers",
        rule="mail must not go to a host that would hand it back (RFC 5321 5.1)",
        file="resolver.py",
        edits=(("    if _is_machine(wanted):\n", "    if False:\n"),),
        test="test_resolver.py::test_what_listens_everywhere_is_behind_each_loopback_address",
    ),
    Fault(
        name="an answer of the DNS that came later leads back to ourselves",
        rule="mail must not go to a host that would hand it back (RFC 5321 5.1)",
        file="resolver.py",
        edits=(("if not self._is_us(MxHost(0, host, (one,)), mx_port)", ""),),
        test="test_resolver.py::test_a_host_of_the_dns_that_came_to_lead_to_ourselves_is_not_connected_to",
    ),
    Fault(
        name="next hops of domains are kept for ever",
        rule="memory stays flat, however many domains there are",
        file="delivery/queue.py",
        edits=(("                del self.hops[name]\n", "                pass\n"),),
        test=_SEVERAL + "test_next_hops_of_domains_are_forgotten_when_they_have_nothing_left",
    ),
    Fault(
        name="a silent next hop is waited for as long as ever",
        rule="ConnectionInactivityTimeout of a Send connector",
        file="service/adapters.py",
        edits=(
            (
                "timeouts=Timeouts.within(route.connection_inactivity_timeout.total_seconds()),\n",
                "",
            ),
        ),
        test="settings/test_route_settings.py::test_the_silence_of_a_next_hop_has_a_limit",
    ),
    Fault(
        name="a route with mx may have a login",
        rule="a password goes to no host that the DNS names",
        file="settings/route_checks.py",
        edits=(("if route.mx and getattr(route, name) is not None:", "if False:"),),
        test="settings/test_route_settings.py::test_what_does_not_go_together_is_told",
    ),
)
