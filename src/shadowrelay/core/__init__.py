"""The decisions of a node, as pure functions, and the rules that keep it from losing a message.

The promise: *a message answered 250 is not lost when any one node dies, at any instant, disk included.* These
rules keep the promise. Each rule names the functions that keep it; a test checks that they exist.

Reception
    1. A sender gets its 250 when its message is durable on two machines. One copy (exposed) is enough only
       where policy allows it: ``reception.redundancy.accept``.
    2. An acknowledgement counts only if the holder's lineage is unbroken: ``reception.redundancy.counts``.
    3. Before a 4yz every copy that may exist is revoked, and a revoked offer that comes late is refused:
       ``reception.redundancy.uncertain``, ``reception.holding.revoke``.
    4. A message that was arriving when a process ended is neither delivered nor forgotten before its holder
       is asked: ``reception.arrivals.in_question``, ``reception.arrivals.learnt``.
    5. A holder takes the copy that an owner offers, unless the copy was revoked, or the message is settled or
       has another owner: ``reception.holding.hold``.
    6. A copy on its owner's own machine does not count as a second copy: ``machines.holding``.
    7. A message with one copy gets another. The owner records a possible holder before it offers the copy:
       ``reception.redundancy.reserve_rank``, ``reception.redundancy.repaired``.

Delivery
    8. A recipient is settled by the answer of its next hop, or by a report that is itself safe:
       ``delivery.settling.settle``, ``events.side_effects.report_is_safe``.
    9. Every member that may hold a copy is told, by an event in the transaction that settles:
       ``events.discard_notices.delivered``, ``events.discard_notices.addressed``.
    10. An event is kept until its addressee has applied it durably: ``events.discard.acknowledge``.
    11. A holder's copy leaves the shadow queue when all recipients are settled:
        ``reception.holding.settle_held``.
    12. A settled message is kept for a while, and its outcome is remembered after that:
        ``safety_net.expiry.expire``.

Promotion
    13. A broken lineage leads to promotion at first contact, silence after the time span:
        ``ownership.heartbeat.meet``, ``ownership.heartbeat.take_over``.
    14. Silence promotes nothing while another member has contact with the owner, or while this node may be
        the one that is cut off: ``members.claims.vouches``, ``members.second_opinion.others``.
    15. Every member that can be reached is asked first; the holder with the lowest rank promotes:
        ``members.claims.judge``, ``members.concluding.conclude``.
    16. A promotion raises the epoch. Of two owners, one yields: ``ownership.transfer.promote``,
        ``ownership.transfer.yields``.

Doubt
    17. An owner that was away or cut off asks the members before it delivers:
        ``ownership.heartbeat.cut_off``, ``ownership.chores.held_back``.
    18. The answer *unknown* is no reason to drop a copy: ``members.questions.learn``.
    19. A message that no member can vouch for waits for an operator: ``ownership.set_aside.set_aside``.
    20. A damaged copy is not delivered, promoted or counted. A good copy takes its place:
        ``members.damage.found``, ``members.damage.answer``, ``reception.holding.restore``.

Orders
    21. What an operator orders counts on every member, at any epoch and in any role; of several orders the
        one that was given last counts: ``reception.holding.order_held``, ``delivery.operated.remove``,
        ``delivery.operated.suspend``.
    22. An order is pending until every database that may hold a copy has acknowledged it:
        ``delivery.operated.pending``.
    23. A member acknowledges an order to stop when no attempt of its own about it is under way any more:
        ``reception.holding.too_early``, ``members.conversation.told``.

Answers that cannot be read
    24. A message that a next hop may have is sent again after growing pauses, then when an operator wants it:
        ``unread.pause_after``. Members count on: ``unread.told_of``, ``reception.holding.unread_held``.

A decision is a function of a ledger, what happened and a clock reading. It returns ``Decision(then, writes,
events)``: the rows and tracking events of one transaction, and what may be said after the commit. This
package has no clock, randomness, logging, I/O or memory of the process. It awaits nothing but ``steps``.
"""
