-- Named queries of the admin API: they read, and change nothing. Safety Net is by far the largest part of the
-- table, and the writer waits meanwhile: conditions that seem superfluous let SQLite use the partial indexes
-- that leave it out (SQLite wants their condition word for word), and CROSS JOIN keeps messages first.

-- name: transit
SELECT role, stage, COUNT(*), MIN(received_at) FROM message WHERE stage <> 'safety_net' GROUP BY stage, role;

-- name: exposed
SELECT COUNT(*) FROM message WHERE exposed = 1;

-- name: confirming
SELECT confirmation, COUNT(*) FROM message
 WHERE confirmation <> 'none' AND role = 'primary' AND stage = 'queued' GROUP BY confirmation;

-- name: promoting
SELECT COUNT(*) FROM message INDEXED BY message_open
 WHERE confirmation <> 'none' AND stage IN ('queued', 'arriving') AND stage = 'queued' AND pending IS NOT NULL;

-- name: settled
SELECT COUNT(*) FROM message WHERE settled_at IS NOT NULL;

-- name: held_for
SELECT owner, COUNT(*), MIN(received_at) FROM message WHERE role = 'shadow' AND stage = 'queued' GROUP BY owner;

-- name: held_by
SELECT h.name, COUNT(*) FROM message m CROSS JOIN holder h ON h.message_id = m.id
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND h.state = 'holding'
 GROUP BY h.name;

-- name: events_waiting
SELECT addressee, COUNT(*) FROM discard_event GROUP BY addressee;

-- name: queues
SELECT r.next_hop, COUNT(DISTINCT m.id), COUNT(*), MIN(r.due_at), SUM(r.due_at IS NULL), MIN(m.received_at),
       SUM(m.exposed), COUNT(DISTINCT CASE WHEN r.due_at <= ? AND a.message_id IS NULL THEN m.id END)
  FROM message m CROSS JOIN recipient r ON r.message_id = m.id
  LEFT JOIN temp.active a ON a.message_id = m.id AND a.next_hop = r.next_hop
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND r.status = 'ready'
 GROUP BY r.next_hop ORDER BY r.next_hop;

-- name: last_errors
-- With one MAX, the bare column last_reply is that of the row with the maximum (SQLite documents it).
SELECT r.next_hop, r.last_reply, MAX(r.next_attempt)
  FROM message m CROSS JOIN recipient r ON r.message_id = m.id
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND r.status = 'ready'
   AND r.next_attempt IS NOT NULL
 GROUP BY r.next_hop;

-- name: active
SELECT next_hop, COUNT(*) FROM temp.active GROUP BY next_hop;

-- name: active_hops
SELECT next_hop FROM temp.active WHERE message_id = ?;

-- name: shadow_queues
SELECT m.owner, r.next_hop, COUNT(DISTINCT m.id), COUNT(*), MIN(m.received_at)
  FROM message m JOIN recipient r ON r.message_id = m.id
 WHERE m.role = 'shadow' AND m.stage = 'queued' AND r.status = 'ready'
 GROUP BY m.owner, r.next_hop ORDER BY m.owner, r.next_hop;

-- name: page_queued
SELECT id FROM message WHERE stage <> 'safety_net' AND role = 'primary' AND stage = 'queued' AND id > ?
 ORDER BY id LIMIT ?;

-- name: page_shadow
SELECT id FROM message WHERE stage <> 'safety_net' AND role = 'shadow' AND stage = 'queued' AND id > ?
 ORDER BY id LIMIT ?;

-- name: page_safety_net
SELECT id FROM message WHERE stage = 'safety_net' AND id > ? ORDER BY id LIMIT ?;

-- name: page_set_aside
SELECT id FROM message WHERE stage <> 'safety_net' AND stage = 'set_aside' AND id > ? ORDER BY id LIMIT ?;

-- name: page_exposed
SELECT id FROM message WHERE exposed = 1 AND id > ? ORDER BY id LIMIT ?;

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
   AND message_id < ?2 ORDER BY 1 LIMIT 5;
