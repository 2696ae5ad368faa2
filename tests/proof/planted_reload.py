"""Faults in what a running node takes: settings files, certificates, and members that are announced."""

from __future__ import annotations

from .planting import Fault

_SETTINGS = "settings/test_settings_reloading.py::"
_NODE = "service/test_reload.py::"
_REAL = "e2e/test_reloading.py::"
_KEPT = "database/test_announced_members.py::"

RELOAD = (
    Fault(
        name="half of a file is taken, and then it is refused",
        rule="all that is new is made before anything is put in place",
        file="service/reload.py",
        edits=(
            (
                "        current = node.current.prepare(settings, book)\n",
                "        current = node.current.prepare(settings, book)\n        current()\n",
            ),
        ),
        test=_NODE + "test_a_file_that_cannot_be_made_after_its_check_changes_nothing",
    ),
    Fault(
        name="what needs a restart counts at once",
        rule="what needs a restart keeps the value with which the node runs",
        file="settings/reloading.py",
        edits=(("            **top,\n", ""),),
        test=_SETTINGS + "test_each_change_counts_now_or_waits",
    ),
    Fault(
        name="what works after a restart alone is taken without it",
        rule="what is taken now is checked as it will run until the restart",
        file="settings/reloading.py",
        edits=(
            (
                "    wrong = tuple(cross_checks(taken, broken=frozenset(), origins={}, of_worker=True))\n",
                "    wrong = tuple(cross_checks(file, broken=frozenset(), origins={}, of_worker=True))\n",
            ),
        ),
        test=_SETTINGS + "test_a_file_that_does_not_work_without_its_restart_is_refused",
    ),
    Fault(
        name="a pair that did not fit is not tried again",
        rule="changed certificates are tried until they are whole and fit",
        file="service/reload.py",
        edits=(
            (
                "                self.certificates.refused(error)\n",
                "                self.certificates.refused(error)\n"
                "                self.certificates.changed = lambda: False\n",
            ),
        ),
        test=_REAL
        + "test_a_certificate_that_is_replaced_is_shown_at_the_next_handshake_and_old_sessions_go_on",
    ),
    Fault(
        name="a forged announcement is taken",
        rule="an announcement counts by the signature of an authority that the node trusts",
        file="authority.py",
        edits=(
            (
                "    except InvalidSignature:\n        return False\n",
                "    except InvalidSignature:\n        return True\n",
            ),
        ),
        test="test_authority.py::test_only_an_authority_that_is_trusted_and_valid_signs_and_no_octet_may_change",
    ),
    Fault(
        name="an older announcement overwrites a later one",
        rule="of two announcements of a member the later one counts",
        file="database/announced.py",
        edits=(("known[1] > announcement.serial", "known[1] > announcement.serial + 1"),),
        test=_KEPT + "test_what_was_announced_is_there_after_a_restart_and_only_a_later_one_takes_its_place",
    ),
    Fault(
        name="an announcement brings a retired member back",
        rule="a member that was retired never comes back",
        file="database/announced.py",
        edits=(("    if member is not None and member.retired:\n", "    if member is None:\n"),),
        test=_KEPT + "test_a_member_that_was_retired_is_not_announced_again",
    ),
)
