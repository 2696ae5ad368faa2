-- Named queries of the admin API: they only read. Safety Net is by far the largest part of the table, and the
-- writer waits meanwhile. Conditions that seem superfluous let SQLite use the partial indexes without Safety Net
-- (SQLite wants the condition of the index word for word). CROSS JOIN makes SQLite read messages first.

-- name: kinds
-- For the tally: counts one part of the mail in transit, once, at a start.
SELECT role, stage, confirmation, exposed, owner, COUNT(*) FROM message
 WHERE stage <> 'safety_net' AND stage <> 'damaged' AND id > ? AND id <= ? GROUP BY 1, 2, 3, 4, 5;

-- name: kind_of
SELECT role, stage, confirmation, exposed, owner FROM message
 WHERE id = ? AND stage <> 'safety_net' AND stage <> 'damaged';

-- name: holders_of
SELECT name FROM holder WHERE message_id = ? AND state = 'holding';

-- name: holders
SELECT h.name, COUNT(*) FROM message m CROSS JOIN holder h ON h.message_id = m.id
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage IN ('queued', 'set_aside') AND m.id > ? AND m.id <= ?
   AND h.state = 'holding'
 GROUP BY h.name;

-- name: holders_together
-- The messages that several members hold, by these members.
SELECT names, COUNT(*) FROM (
    SELECT (SELECT json_group_array(h.name) FROM holder h
             WHERE h.message_id = m.id AND h.state = 'holding' AND typeof(h.name) = 'text') AS names
      FROM message m
     WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage IN ('queued', 'set_aside')
       AND m.id > ? AND m.id <= ?)
 WHERE json_array_length(names) > 1 GROUP BY names;

-- name: kinds_by_hop
-- The same of what waits for next hops. Recipients of one message come one after the other: its first for a next hop
-- has the lowest number.
SELECT r.next_hop,
       SUM(NOT EXISTS (SELECT 1 FROM recipient o WHERE o.message_id = m.id AND o.number < r.number
                          AND o.next_hop = r.next_hop AND o.status = 'ready')),
       COUNT(*), SUM(m.confirmation = 'ask' OR m.damage IS 'content'),
       SUM(m.exposed <> 0 AND NOT EXISTS (SELECT 1 FROM recipient o WHERE o.message_id = m.id AND o.number < r.number
                          AND o.next_hop = r.next_hop AND o.status = 'ready')),
       MIN(m.id)
  FROM message m CROSS JOIN recipient r ON r.message_id = m.id
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND r.status = 'ready'
   AND m.id > ? AND m.id <= ?
 GROUP BY r.next_hop;

-- name: kinds_held_by_hop
SELECT m.owner, r.next_hop,
       SUM(NOT EXISTS (SELECT 1 FROM recipient o WHERE o.message_id = m.id AND o.number < r.number
                          AND o.next_hop = r.next_hop AND o.status = 'ready')), COUNT(*)
  FROM message m CROSS JOIN recipient r ON r.message_id = m.id
 WHERE m.stage <> 'safety_net' AND m.role = 'shadow' AND m.stage = 'queued' AND r.status = 'ready'
   AND m.id > ? AND m.id <= ?
 GROUP BY m.owner, r.next_hop;

-- name: hops_of
SELECT r.next_hop, m.confirmation = 'ask' OR m.damage IS 'content'
  FROM message m CROSS JOIN recipient r ON r.message_id = m.id WHERE m.id = ? AND r.status = 'ready';

-- name: oldest
-- Ids are in the order of reception, except those of reports: the oldest message is among the first.
SELECT MIN(received_at) FROM (
    SELECT iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL),
               came_at(m.id, m.received_at), m.received_at) AS received_at
      FROM message m WHERE stage <> 'safety_net' AND role = ? AND stage = 'queued' ORDER BY id LIMIT 1000);

-- name: promoting
SELECT COUNT(*) FROM message INDEXED BY message_open
 WHERE confirmation <> 'none' AND stage IN ('queued', 'arriving') AND stage = 'queued' AND pending IS NOT NULL;

-- name: promoting_for
-- The same by owner, which takes six times as long.
SELECT owner, COUNT(*) FROM message INDEXED BY message_open
 WHERE confirmation <> 'none' AND stage IN ('queued', 'arriving') AND stage = 'queued' AND pending IS NOT NULL
 GROUP BY owner;

-- name: damage
-- Damaged messages, by content and rows: how many are set aside, and how many are not.
SELECT 'content', stage = 'set_aside', COUNT(*) FROM message INDEXED BY message_damage
 WHERE damage IS NOT NULL AND damage = 'content' AND stage IN ('queued', 'set_aside') GROUP BY 2
UNION ALL
SELECT 'rows', set_aside <> 0, COUNT(*) FROM damaged GROUP BY 2;

-- name: settled
SELECT COUNT(*) FROM message WHERE settled_at IS NOT NULL;

-- name: events_waiting
SELECT addressee, COUNT(*) FROM discard_event GROUP BY addressee;

-- name: part_of_queue
-- The id at OFFSET, which ends a part of a queue; no row if the part is the last.
SELECT id FROM message WHERE stage <> 'safety_net' AND role = ? AND stage = 'queued' AND id > ?
 ORDER BY id LIMIT 1 OFFSET ?;

-- name: first_due
SELECT MIN(due_at) FROM recipient WHERE next_hop = ? AND due_at IS NOT NULL;

-- name: first_unsent
-- When the first recipient was due that is not being sent, as the index of due mail has it.
SELECT due_at FROM recipient AS r WHERE next_hop = ? AND due_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM temp.active a WHERE a.message_id = r.message_id AND a.next_hop = r.next_hop)
 ORDER BY due_at LIMIT 1;

-- name: first_unsent_in_rows
-- The same as the rows of the first messages of a next hop have it, whatever an index says: + keeps SQLite from it.
SELECT MIN(r.due_at) FROM (
    SELECT id FROM message WHERE stage <> 'safety_net' AND role = :role AND stage = 'queued' AND id >= :floor
     ORDER BY id LIMIT 100) m CROSS JOIN recipient r ON r.message_id = m.id
 WHERE +r.next_hop = :hop AND +r.due_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM temp.active a WHERE a.message_id = r.message_id AND a.next_hop = r.next_hop);

-- name: unsent
-- The same of the first messages of this node, by next hop.
SELECT next_hop, MIN(due_at) FROM (
    SELECT r.next_hop, r.due_at, r.message_id FROM (
        SELECT id FROM message WHERE stage <> 'safety_net' AND role = ? AND stage = 'queued' ORDER BY id LIMIT 200) m
     CROSS JOIN recipient r ON r.message_id = m.id LIMIT 2000) first
 WHERE due_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM temp.active a WHERE a.message_id = first.message_id AND a.next_hop = first.next_hop)
 GROUP BY 1;

-- name: last_error
-- Mail that was tried is due at its next attempt, so the last error is among the last of a queue.
SELECT last_reply FROM (
    SELECT last_reply, next_attempt FROM recipient WHERE next_hop = ? AND due_at IS NOT NULL
     ORDER BY due_at DESC, message_id DESC, number DESC LIMIT 1000)
 WHERE next_attempt IS NOT NULL LIMIT 1;

-- name: part_of_due
-- The place in the queue of a next hop at OFFSET, which ends a part; no row if the part is the last.
SELECT due_at, message_id, number FROM recipient
 WHERE next_hop = :hop AND due_at <= :now AND (due_at, message_id, number) > (:due, :id, :number)
 ORDER BY due_at, message_id, number LIMIT 1 OFFSET :most;

-- name: unread
-- Recipients that a next hop may have, since its answer could not be read. A count of 0: an operator let them go on.
SELECT COUNT(*) FROM recipient WHERE unread IS NOT NULL AND unread > '1' AND due_at IS NOT NULL;

-- name: unread_to
SELECT COUNT(*) FROM recipient
 WHERE next_hop = ? AND unread IS NOT NULL AND unread > '1' AND due_at IS NOT NULL;

-- name: due_in_part
SELECT COUNT(DISTINCT message_id) FROM recipient
 WHERE next_hop = :hop AND due_at <= :now AND (due_at, message_id, number) > (:due, :id, :number)
   AND (due_at, message_id, number) <= (:until_due, :until_id, :until_number);

-- name: oldest_to
-- The first messages for a next hop in one part of the queue. Ids are in the order of reception, except those of reports.
SELECT MIN(id), MIN(received_at) FROM (
    SELECT m.id AS id, iif(r.ordered_at IS NULL, m.received_at, came_at(m.id, m.received_at)) AS received_at
      FROM message m CROSS JOIN recipient r ON r.message_id = m.id
     WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND r.status = 'ready'
       AND m.id >= :floor AND m.id <= :until AND r.next_hop = :hop
     ORDER BY m.id LIMIT 100);

-- name: suspended_to
-- The recipients of the first messages for a next hop in one part of the queue, and how many of them are suspended.
SELECT COUNT(*), COUNT(*) FILTER (WHERE suspended > :now) FROM (
    SELECT r.suspended AS suspended FROM message m CROSS JOIN recipient r ON r.message_id = m.id
     WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND r.status = 'ready'
       AND m.id >= :floor AND m.id <= :until AND r.next_hop = :hop
     ORDER BY m.id LIMIT 100);

-- name: active_to
SELECT COUNT(*) FROM temp.active WHERE next_hop = ?;

-- name: active_hops
SELECT next_hop FROM temp.active WHERE message_id = ?;

-- name: oldest_of_few
SELECT MIN(iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL),
           came_at(m.id, m.received_at), m.received_at))
  FROM message m INDEXED BY message_shadow WHERE role = 'shadow' AND stage = 'queued' AND owner = ?;

-- name: oldest_of_many
-- Ids are in the order of reception, except those of reports.
SELECT MIN(received_at) FROM (
    SELECT iif(EXISTS (SELECT 1 FROM recipient x WHERE x.message_id = m.id AND x.ordered_at IS NOT NULL),
               came_at(m.id, m.received_at), m.received_at) AS received_at
      FROM message m INDEXED BY message_transit
     WHERE stage <> 'safety_net' AND stage = 'queued' AND role = 'shadow' AND owner = ? ORDER BY id LIMIT 1000);

-- name: page_queued
SELECT id FROM message WHERE stage <> 'safety_net' AND role = 'primary' AND stage = 'queued' AND id > ?
 ORDER BY id LIMIT ?;

-- name: page_shadow
SELECT id FROM message WHERE stage <> 'safety_net' AND role = 'shadow' AND stage = 'queued' AND id > ?
 ORDER BY id LIMIT ?;

-- name: page_safety_net
SELECT id FROM message WHERE stage = 'safety_net' AND id > ? ORDER BY id LIMIT ?;

-- name: page_set_aside
SELECT id FROM message WHERE stage <> 'safety_net' AND stage = 'set_aside' AND id > ?1
UNION SELECT message_id FROM damaged WHERE set_aside <> 0 AND message_id > ?1 ORDER BY 1 LIMIT ?2;

-- name: page_damaged
SELECT id FROM message INDEXED BY message_damage
 WHERE damage IS NOT NULL AND damage = 'content' AND stage IN ('queued', 'set_aside') AND id > ?1
UNION SELECT message_id FROM damaged WHERE message_id > ?1 ORDER BY 1 LIMIT ?2;

-- name: page_exposed
SELECT id FROM message WHERE exposed = 1 AND id > ? ORDER BY id LIMIT ?;

-- name: page_at_risk
-- Of :owners this node has the one copy that can be reached; of what only :holders hold, too. Both are JSON lists.
SELECT id FROM (SELECT id FROM message WHERE exposed = 1 AND id > :after ORDER BY id LIMIT :most)
UNION
SELECT id FROM (
    SELECT id FROM message
     WHERE stage <> 'safety_net' AND role = 'shadow' AND stage = 'queued' AND id > :after
       AND (owner IN (SELECT value FROM json_each(:owners)) OR pending IS NOT NULL) ORDER BY id LIMIT :most)
UNION
SELECT id FROM (
    SELECT m.id FROM message m
     WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage IN ('queued', 'set_aside') AND m.id > :after
       AND :holders <> '[]'
       AND EXISTS (SELECT 1 FROM holder h WHERE h.message_id = m.id AND h.state = 'holding')
       AND NOT EXISTS (SELECT 1 FROM holder h WHERE h.message_id = m.id AND h.state = 'holding'
                          AND h.name NOT IN (SELECT value FROM json_each(:holders)))
     ORDER BY m.id LIMIT :most)
 ORDER BY 1 LIMIT :most;

-- name: page_asking
SELECT id FROM message
 WHERE confirmation <> 'none' AND confirmation = 'ask' AND role = 'primary' AND stage = 'queued' AND id > ?
 ORDER BY id LIMIT ?;

-- name: page_in_doubt
SELECT id FROM message
 WHERE confirmation <> 'none' AND confirmation = 'in_doubt' AND role = 'primary' AND stage = 'queued'
   AND id > ?
 ORDER BY id LIMIT ?;

-- name: like
SELECT id FROM message WHERE id >= ?1 AND id < ?2 AND stage <> 'arriving' UNION SELECT message_id FROM outcome WHERE message_id >= ?1
   AND message_id < ?2 UNION SELECT message_id FROM damaged WHERE message_id >= ?1 AND message_id < ?2 ORDER BY 1 LIMIT 5;
