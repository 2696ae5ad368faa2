-- What of the queue a job is about (core/filtering.py): the same conditions in SQL. ``compared``, ``read_text``,
-- ``folded`` and ``domain_of`` are functions of the connection (selectors.py). SQLite's own ``lower`` knows ASCII
-- alone: it folds an address of printable ASCII, and Python folds any other.

-- name: page
-- A part of the queue, in the order of ids, with a flag for messages that have a recipient which matches: it never
-- looks at more than LIMIT messages, however few match.
SELECT m.id,
       (m.received_at < :made_at
        OR EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL))
       AND (:sender IS NULL OR iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)) = :sender)
       AND (:sender_end IS NULL
            OR substr(iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)), -length(:sender_end))
               = :sender_end)
       AND (:subject IS NULL OR instr(read_text(m.subject), :subject) > 0)
       AND (:before IS NULL OR iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL), came_at(m.id, m.received_at), m.received_at) <= :before)
       AND (:since IS NULL OR iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL), came_at(m.id, m.received_at), m.received_at) >= :since)
       AND (:larger IS NULL OR m.size >= :larger)
       AND (:smaller IS NULL OR m.size <= :smaller)
       AND EXISTS (
           SELECT 1 FROM recipient r
            WHERE r.message_id = m.id AND r.status = 'ready'
              AND (:queue IS NULL OR r.next_hop = :queue
                   OR substr(r.next_hop, 1, length(:queue) + 1) = :queue || '/')
              AND (:recipient IS NULL
                   OR iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)) = :recipient)
              AND (:recipient_end IS NULL
                   OR substr(iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)),
                             -length(:recipient_end)) = :recipient_end)
              AND (:domain IS NULL OR domain_of(r.address) = :domain)
              AND (:suspended IS NULL OR :suspended = (ifnull(r.suspended, 0) > :now))
              AND (:error IS NULL OR instr(folded(r.last_reply), :error) > 0))
  FROM message m
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND m.id > :after
 ORDER BY m.id LIMIT :most;

-- name: taken
-- Messages of ours that were promoted from copies held for others, behind an id.
SELECT id FROM message WHERE former_owner IS NOT NULL AND role = 'primary' AND stage = 'queued' AND id > ?
 ORDER BY id LIMIT ?;

-- name: matching
-- All that a filter without ids means on this node, for a preview.
SELECT m.id, iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL),
       came_at(m.id, m.received_at), m.received_at),
       m.sender, m.size, m.subject, m.message_id, r.number, r.address, r.next_hop, r.last_reply,
       r.attempts, r.suspended
  FROM message m CROSS JOIN recipient r ON r.message_id = m.id
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued'
   AND m.received_at < :made_at
   AND (:sender IS NULL OR iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)) = :sender)
   AND (:sender_end IS NULL
        OR substr(iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)), -length(:sender_end))
           = :sender_end)
   AND (:subject IS NULL OR instr(read_text(m.subject), :subject) > 0)
   AND (:before IS NULL OR iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL), came_at(m.id, m.received_at), m.received_at) <= :before)
   AND (:since IS NULL OR iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL), came_at(m.id, m.received_at), m.received_at) >= :since)
   AND (:larger IS NULL OR m.size >= :larger)
   AND (:smaller IS NULL OR m.size <= :smaller)
   AND r.status = 'ready'
   AND (:queue IS NULL OR r.next_hop = :queue OR substr(r.next_hop, 1, length(:queue) + 1) = :queue || '/')
   AND (:recipient IS NULL OR iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)) = :recipient)
   AND (:recipient_end IS NULL
        OR substr(iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)), -length(:recipient_end))
           = :recipient_end)
   AND (:domain IS NULL OR domain_of(r.address) = :domain)
   AND (:suspended IS NULL OR :suspended = (ifnull(r.suspended, 0) > :now))
   AND (:error IS NULL OR instr(folded(r.last_reply), :error) > 0)
 ORDER BY m.id, r.number;

-- name: sending
-- How many delivery attempts are under way to a next hop, or to the next hops of a route.
SELECT COUNT(*) FROM temp.active
 WHERE next_hop = :queue OR substr(next_hop, 1, length(:queue) + 1) = :queue || '/';

-- name: unacknowledged_remove
-- Messages of which a member has not acknowledged the removal yet.
SELECT COUNT(DISTINCT message_id) FROM discard_event WHERE argument = 'removed' AND created_at >= :since;

-- name: unreported_remove
-- Messages that were removed, of which nobody is told before a report is safe.
SELECT COUNT(DISTINCT message_id) FROM recipient INDEXED BY recipient_settled
 WHERE settled_at IS NOT NULL AND settled_at >= :since AND status = 'removed' AND report IS NOT NULL;

-- name: unacknowledged_bounce
-- The same of messages that an operator bounced: the reply tells them from those that failed by themselves.
SELECT COUNT(DISTINCT e.message_id) FROM discard_event e INDEXED BY discard_event_failed
 WHERE e.argument = 'failed' AND e.created_at >= :since
   AND EXISTS (SELECT 1 FROM recipient r
                WHERE r.message_id = e.message_id AND r.status = 'failed' AND r.last_reply = :bounced);

-- name: unreported_bounce
SELECT COUNT(DISTINCT message_id) FROM recipient INDEXED BY recipient_settled
 WHERE settled_at IS NOT NULL AND settled_at >= :since AND status = 'failed' AND last_reply = :bounced
   AND (report IS NOT NULL OR journal IS NOT NULL);

-- name: unacknowledged_suspend
SELECT COUNT(DISTINCT message_id) FROM discard_event WHERE kind = 'suspended' AND created_at >= :since;

-- name: unacknowledged_resume
SELECT COUNT(DISTINCT message_id) FROM discard_event WHERE kind = 'resumed' AND created_at >= :since;

-- name: promoting
SELECT EXISTS (SELECT 1 FROM message INDEXED BY message_open
                WHERE confirmation <> 'none' AND stage IN ('queued', 'arriving') AND pending IS NOT NULL);
