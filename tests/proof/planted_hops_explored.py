"""Faults between hops that only the exploration of every order of steps notices."""

from __future__ import annotations

from .planting import Fault

_KEPT = "our copy stays until the hop has delivered, and not longer"
_ONCE = "a lost reply between hops makes no duplicate"
_PATH = "exploration/test_hops.py::test_every_order_of_steps_between_hops_keeps_the_promise"

HOPS_EXPLORED = (
    Fault(
        name="a hop may forget an event that came before its 250 was written down",
        rule=_KEPT,
        file="core/members/hop_discards.py",
        edits=(("        early = copy and any(", "        early = False and any("),),
        test=f"{_PATH}[no fault]",
    ),
    Fault(
        name="a message in doubt holds up all events of a hop behind it",
        rule=_KEPT,
        file="core/members/hop_discards.py",
        edits=(("        if early and (index or len(lines) < MAX_LINES):\n", "        if early:\n"),),
        test="core/delivery/test_hop_shadows.py::"
        "test_an_event_about_a_message_that_stays_in_doubt_does_not_hold_up_whole_pages_of_others",
    ),
    Fault(
        name="the last events of a hop are not acknowledged",
        rule=_KEPT,
        file="core/members/hop_discards.py",
        edits=(("    return MAX_LINES if len(numbers) >= MAX_LINES else 0\n", "    return None\n"),),
        test=f"{_PATH}[no fault]",
    ),
    Fault(
        name="how far the events of a hop are applied is stored before they are",
        rule=_KEPT,
        file="delivery/hop_talk.py",
        edits=(
            (
                "        most = await Transact(apply)\n",
                "        from shadowrelay.core.decisions import Decision\n"
                "        from shadowrelay.core.identifiers import Mark\n"
                "        from shadowrelay.core.values import replace\n\n"
                "        def early(ledger, answered=answered):\n"
                "            if answered.lines and (peer := ledger.hop_peer(hop)):\n"
                "                upto = Mark(answered.mark.incarnation, answered.lines[-1].event)\n"
                "                ledger.apply(Decision(None, (replace(peer, applied=upto),)))\n\n"
                "        await Transact(early)\n"
                "        most = await Transact(apply)\n",
            ),
        ),
        test=f"{_PATH}[kill A, after the 250]",
    ),
    Fault(
        name="a hop tells of a delivery before there is one",
        rule=_KEPT,
        file="core/events/announcements.py",
        edits=(
            (
                "        if recipient.settled and not recipient.waits and number is not None:\n"
                "            groups.setdefault(_BEYOND[recipient.status], []).append(number)\n",
                "        if number is not None:\n"
                '            groups.setdefault(_BEYOND.get(recipient.status, ""), []).append(number)\n',
            ),
        ),
        test=f"{_PATH}[kill A, after the 250]",
    ),
    Fault(
        name="a recipient that is handed over again is taken again",
        rule=_ONCE,
        file="core/reception/redundancy.py",
        edits=(
            (
                "    if not before:\n        return arrival, ()\n",
                "    if True:\n        return arrival, ()\n",
            ),
        ),
        test=f"{_PATH}[kill A, after the 250]",
    ),
    Fault(
        name="what is sent again stays in the shadow queue",
        rule="what a hop fails to deliver goes another way, once",
        file="core/delivery/hop_shadows.py",
        edits=(
            (
                "    return Decision(made.id, left).after(queued)\n",
                "    return Decision(made.id).after(queued)\n",
            ),
        ),
        test=f"{_PATH}[disk B]",
    ),
    Fault(
        name="the loss of a hop's database is not seen",
        rule="what a hop fails to deliver goes another way, once",
        file="core/delivery/hop_shadows.py",
        edits=(("        return Reason.DATABASE_REPLACED\n", "        return None\n"),),
        test=f"{_PATH}[disk B]",
    ),
)
