"""Faults in the paths between sites, and in what goes along them."""

from __future__ import annotations

from .planting import Fault

_SITES = "core/reception/test_sites.py::"
_EVERY_HOP = _SITES + (
    "test_with_equal_settings_every_hop_comes_closer_to_each_recipient_and_each_gets_the_message_once"
)

SITES: tuple[Fault, ...] = (
    Fault(
        name="fewer hops come before less cost",
        rule="the path of least cost is taken",
        file="core/reception/sites.py",
        edits=(("(cost + more, hops + 1,", "(hops + 1, cost + more,"),),
        test=_SITES + "test_the_path_of_least_cost_is_taken_though_it_has_more_hops",
    ),
    Fault(
        name="hops are not counted",
        rule="of equal cost the path with the fewest hops is taken",
        file="core/reception/sites.py",
        edits=(("(cost + more, hops + 1,", "(cost + more, hops,"),),
        test=_SITES + "test_of_equal_cost_the_path_with_the_fewest_hops_is_taken",
    ),
    Fault(
        name="capital letters come first",
        rule="of as many hops the path with the lowest name is taken",
        file="core/reception/sites.py",
        edits=(("(*names, site.lower())", "(*names, site)"),),
        test=_SITES + "test_of_as_many_hops_the_path_with_the_lowest_name_is_taken_whatever_its_case",
    ),
    Fault(
        name="each site gets a copy of its own",
        rule="recipients behind a common path get one copy to its last site",
        file="core/reception/sites.py",
        edits=(("    if len(sites) < 2:\n", "    if sites:\n"),),
        test="reception/test_fan_out.py::test_recipients_behind_a_common_path_have_one_next_hop",
    ),
    Fault(
        name="the copy goes to the first site that is shared",
        rule="recipients behind a common path get one copy to its last site",
        file="core/reception/sites.py",
        edits=(("_shared(branch)[-1] for", "_shared(branch)[0] for"),),
        test=_SITES + "test_recipients_behind_a_common_path_get_one_copy_to_its_last_site",
    ),
    Fault(
        name="recipients that share nothing share a copy",
        rule="every recipient gets the message once",
        file="core/reception/sites.py",
        edits=(("branches.setdefault(way.sites[0], [])", 'branches.setdefault("", [])'),),
        test=_SITES + "test_a_single_site_and_one_that_shares_nothing_are_gone_to_straight",
    ),
    Fault(
        name="the closest site to us is tried first",
        rule="straight to the end, else back along the path",
        file="core/reception/sites.py",
        edits=(("    return way.sites[:reach][::-1]\n", "    return way.sites[:reach]\n"),),
        test=_SITES + "test_straight_to_the_end_else_back_along_the_path",
    ),
    Fault(
        name="a hub is passed",
        rule="mail for sites behind a hub stops there",
        file="core/reception/sites.py",
        edits=(("    stop_at = frozenset(hubs)\n", "    stop_at: frozenset[str] = frozenset()\n"),),
        test=_SITES + "test_the_first_hub_on_the_path_is_as_far_as_a_message_goes",
    ),
    Fault(
        name="a link leads one way",
        rule="with equal settings every hop comes closer",
        file="core/reception/sites.py",
        edits=(("((one, other), (other, one))", "((one, other),)"),),
        test=_EVERY_HOP,
    ),
    Fault(
        name="a site that no link leads to is no error",
        rule="a site without a path is told in the settings",
        file="settings/sites.py",
        edits=(("        if site != settings.site and site not in reached:\n", "        if False:\n"),),
        test="settings/test_site_settings.py::test_what_does_not_go_together_is_told"
        "[changes0-sites.dublin-no site_links lead there from chicago]",
    ),
    Fault(
        name="mail of our own site goes to its hosts",
        rule="in its own site a route leads to its own host",
        file="settings/routing.py",
        edits=(("route.site and route.site != settings.site", "route.site"),),
        test="settings/test_site_settings.py::"
        "test_a_route_leads_to_its_site_from_others_and_to_its_own_host_there",
    ),
    Fault(
        name="only the end of a path is tried",
        rule="straight to the site at the end, else back to the closest that answers",
        file="settings/sites.py",
        edits=((" for stop in stops_to(settings, site))", " for stop in stops_to(settings, site)[:1])"),),
        test="settings/test_site_settings.py::"
        "test_the_hosts_of_a_site_are_tried_and_then_those_of_the_sites_back_along_the_path",
    ),
    Fault(
        name="the settings of the end count for all sites on the path",
        rule="each site has its own TLS and login",
        file="settings/sites.py",
        edits=(
            (
                "    hop = site_hop(site)\n    return HostGroup(",
                "    hop = site_hop(sorted(settings.sites)[0])\n    return HostGroup(",
            ),
        ),
        test="settings/test_site_settings.py::"
        "test_the_hosts_of_each_site_are_spoken_to_as_the_settings_of_that_site_say",
    ),
)
