"""What is decided, and why no message is lost.

The promise: *a message answered 250 is not lost when any one node dies, at any instant, disk included.* These
rules keep it. Each names the functions that do; a test checks that they are there.

Reception
    1. A sender has its 250 when its message is durable on two machines; with one copy (exposed) only where
       policy allows it: ``reception.redundancy.accept``.
    2. An acknowledgement counts on an unbroken lineage alone: ``reception.redundancy.counts``.
    3. Before a 4yz every copy that may exist is revoked, and what was revoked is refused for ever:
       ``reception.redundancy.uncertain``, ``reception.holding.revoke``.
    4. What was arriving when a process ended is neither delivered nor forgotten before its holder was asked:
       ``reception.arrivals.in_question``, ``reception.arrivals.learnt``.
    5. A holder takes a copy from its owner, unless it was revoked or settled: ``reception.holding.hold``.
    6. A copy beside its owner, on the same machine, is no second copy: ``machines.holding``.
    7. A message with one copy gets another. Every possible holder is on record before it can hold anything:
       ``reception.redundancy.reserve_rank``, ``reception.redundancy.repaired``.

Delivery
    8. A recipient is settled by its next hop's answer, or by a report that is itself safe:
       ``delivery.settling.settle``, ``events.side_effects.report_is_safe``.
    9. All that may hold a copy are told, by events in the transaction that settles:
       ``events.announcements.delivered``, ``events.announcements.addressed``.
    10. An event waits until its addressee has applied it durably: ``events.discard.acknowledge``.
    11. A holder's copy leaves the shadow queue when all its recipients are settled:
        ``reception.holding.settle_held``.
    12. What is settled is kept for a while, and remembered after that: ``delivery.safety_net.expire``.

Promotion
    13. A broken lineage promotes at first contact, silence after the time span: ``ownership.heartbeat.meet``,
        ``ownership.heartbeat.take_over``.
    14. Nothing is promoted while another member has contact with the owner, or while this node may be the one
        that is cut off: ``members.claims.vouches``, ``members.second_opinion.others``.
    15. All that can be reached are asked first; the lowest rank promotes: ``members.claims.judge``,
        ``members.concluding.conclude``.
    16. A promotion raises the epoch; of two owners one yields: ``ownership.transfer.promote``,
        ``ownership.transfer.yields``.

Doubt
    17. An owner that was away or cut off asks before it delivers: ``ownership.heartbeat.cut_off``,
        ``ownership.chores.held_back``.
    18. *Unknown* releases nothing: ``members.questions.learn``.
    19. What nobody can vouch for waits for an operator: ``ownership.set_aside.set_aside``.
    20. A damaged copy is not delivered, promoted or counted; a good one takes its place:
        ``members.damage.found``, ``members.damage.answer``, ``reception.holding.restore``.

A decision is a function of a ledger, what happened and a clock reading. It returns ``Decision(then, writes,
events)``: the rows and tracking events of one transaction, and what may be said after it. There is no clock
here, no randomness, no logging, no I/O and no memory of the process; nothing is awaited but ``steps``.
"""
