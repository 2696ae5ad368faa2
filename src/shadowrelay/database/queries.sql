-- Named queries of the ledger: every statement that a decision or a stage runs. Safety Net is by far the largest
-- part of the tables: frequent queries must not read it (tests/database/test_database_plans.py). A condition that
-- seems superfluous lets SQLite use a partial index: SQLite wants the condition of the index word for word.

-- name: message
SELECT id, epoch, rank, role, stage, owner, owner_database, offered_in, sender, size, body, smtputf8, ret, envid,
       message_id, subject, ranks_given, former_owner, received_at, settled_at, reports_on, pending, content_digest,
       envelope_digest, digests_late, damage, renewed_at, content_of, request, tls, confirmation, confirm_since,
       check_at, row_sum, asked_sum, exposed
  FROM message WHERE id = ?;

-- name: recipients
SELECT message_id, number, address, next_hop, notify, orcpt, status, attempts, next_attempt, last_reply,
       delay_notified, report, settled_at, journal, suspended, ordered_at, unread, row_sum
  FROM recipient WHERE message_id = ? ORDER BY number;

-- name: holders
SELECT message_id, database_id, name, incarnation, sequence, rank, state, row_sum
  FROM holder WHERE message_id = ? ORDER BY rank, name, database_id;

-- name: put_message
INSERT OR REPLACE INTO message (id, epoch, rank, role, stage, owner, owner_database, offered_in, sender, size, body,
       smtputf8, ret, envid, message_id, subject, ranks_given, former_owner, received_at, settled_at, reports_on,
       pending, content_digest, envelope_digest, digests_late, damage, renewed_at, content_of, request, tls,
       confirmation, confirm_since, check_at, exposed, row_sum, asked_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: put_recipient
INSERT OR REPLACE INTO recipient (message_id, number, address, next_hop, notify, orcpt, status, attempts,
       next_attempt, last_reply, delay_notified, report, settled_at, journal, suspended, ordered_at, unread,
       due_at, row_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: put_holder
INSERT OR REPLACE INTO holder (message_id, database_id, name, incarnation, sequence, rank, state, row_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: drop_holder
DELETE FROM holder WHERE message_id = ? AND database_id = ?;

-- name: put_content
INSERT INTO content (message_id, data, path) VALUES (?, ?, ?);

-- name: content
SELECT data, path FROM content WHERE message_id = ?;

-- name: content_of
SELECT content_of FROM shared_content WHERE message_id = ?;

-- name: share_content
INSERT OR REPLACE INTO shared_content (message_id, content_of) VALUES (?, ?);

-- name: stop_sharing
DELETE FROM shared_content WHERE message_id = ?;

-- name: heir
-- A message that uses the octets of this one. One that has octets of its own needs none.
SELECT min(message_id) FROM shared_content AS s WHERE content_of = ?
   AND NOT EXISTS (SELECT 1 FROM content c WHERE c.message_id = s.message_id);

-- name: inherit_content
UPDATE content SET message_id = ? WHERE message_id = ?;

-- name: follow_heir
UPDATE shared_content SET content_of = ? WHERE content_of = ?;

-- name: users_alike
-- Other messages that use the same octets, and expect the same digest.
SELECT m.id FROM message m
 WHERE m.content_digest = :digest AND m.id <> :id
   AND (m.id = :keeper OR m.id IN (SELECT s.message_id FROM shared_content s WHERE s.content_of = :keeper))
 ORDER BY m.id;

-- name: content_paths
SELECT path FROM content WHERE path IS NOT NULL;

-- name: move_content
UPDATE content SET path = ? WHERE path = ?;

-- name: drop_message
DELETE FROM message WHERE id = ?;

-- name: drop_recipients
DELETE FROM recipient WHERE message_id = ?;

-- name: drop_holders
DELETE FROM holder WHERE message_id = ?;

-- name: drop_content
DELETE FROM content WHERE message_id = ?;

-- name: damaged
SELECT message_id, found_at, what, settled, set_aside, row_sum FROM damaged WHERE message_id = ?;

-- name: put_damaged
INSERT OR REPLACE INTO damaged (message_id, found_at, what, settled, set_aside, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: drop_damaged
DELETE FROM damaged WHERE message_id = ?;

-- name: quarantine
UPDATE message SET stage = 'damaged', exposed = 0, confirmation = 'none', settled_at = NULL, damage = NULL WHERE id = ?;

-- name: damaged_copies
SELECT id FROM message INDEXED BY message_damage WHERE damage IS NOT NULL AND stage = 'queued' AND id > ? ORDER BY id LIMIT ?;

-- name: damaged_rows
SELECT message_id FROM damaged WHERE set_aside = 0 AND message_id > ? ORDER BY message_id LIMIT ?;

-- name: outcome
SELECT message_id, epoch, delivered, keep_until, refused, row_sum FROM outcome WHERE message_id = ?;

-- name: put_outcome
INSERT OR REPLACE INTO outcome (message_id, epoch, delivered, keep_until, refused, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: tombstone
SELECT message_id, epoch, rank, keep_until, owner, row_sum FROM tombstone WHERE message_id = ?;

-- name: put_tombstone
INSERT OR REPLACE INTO tombstone (message_id, epoch, rank, keep_until, owner, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: knows
SELECT EXISTS (SELECT 1 FROM message WHERE id = ?1) OR EXISTS (SELECT 1 FROM outcome WHERE message_id = ?1)
    OR EXISTS (SELECT 1 FROM tombstone WHERE message_id = ?1) OR EXISTS (SELECT 1 FROM damaged WHERE message_id = ?1)
    OR EXISTS (SELECT 1 FROM content WHERE message_id = ?1)
    OR EXISTS (SELECT 1 FROM shared_content WHERE message_id = ?1);

-- name: member
SELECT name, database_id, beginnings, sequence, knows_ours, applied_incarnation, applied_event, retired, replaced,
       broken_at, row_sum
  FROM member WHERE name = ?;

-- name: members
SELECT name, database_id, beginnings, sequence, knows_ours, applied_incarnation, applied_event, retired, replaced,
       broken_at, row_sum
  FROM member ORDER BY name;

-- name: clear_members
DELETE FROM member;

-- name: put_member
INSERT OR REPLACE INTO member (name, database_id, beginnings, sequence, knows_ours, applied_incarnation,
       applied_event, retired, replaced, broken_at, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, row_sum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10));

-- name: held_for
-- A part of the queue, in the order of ids, with a flag for the messages that match: it never reads more than LIMIT
-- rows, however long the queue is and however few match. The next queries do the same.
SELECT id, owner = ? FROM message
 WHERE stage <> 'safety_net' AND role = 'shadow' AND stage = 'queued' AND id > ? ORDER BY id LIMIT ?;

-- name: unclaimed
SELECT id, owner = ? AND pending IS NULL FROM message
 WHERE stage <> 'safety_net' AND role = 'shadow' AND stage = 'queued' AND id > ? ORDER BY id LIMIT ?;

-- name: held_by
SELECT m.id, EXISTS (SELECT 1 FROM holder h WHERE h.message_id = m.id AND h.name = ?) FROM message m
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = ? AND m.id > ? ORDER BY m.id LIMIT ?;

-- name: counted
SELECT m.id, EXISTS (SELECT 1 FROM holder h WHERE h.message_id = m.id AND h.name = ? AND h.state = 'holding')
  FROM message m
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = ? AND m.id > ? ORDER BY m.id LIMIT ?;

-- name: lost
SELECT m.id, EXISTS (SELECT 1 FROM holder h WHERE h.message_id = m.id AND h.name = ? AND h.state = 'lost')
  FROM message m
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = ? AND m.id > ? ORDER BY m.id LIMIT ?;

-- name: in_doubt
SELECT m.id, EXISTS (SELECT 1 FROM holder h WHERE h.message_id = m.id AND h.name = ?)
  FROM message m INDEXED BY message_confirm
 WHERE m.confirmation <> 'none' AND m.confirmation = 'in_doubt' AND m.role = 'primary' AND m.stage = 'queued'
   AND m.id > ?
 ORDER BY m.id LIMIT ?;

-- name: in_transit
SELECT id FROM message WHERE stage <> 'safety_net' AND stage = ? AND role = ? AND id > ? ORDER BY id LIMIT ?;

-- name: any_unclaimed
-- A copy whose promotion is pending is hardly ever due for a check: the second half reads few entries of the index.
SELECT EXISTS (SELECT 1 FROM message WHERE owner = ?1 AND role = 'shadow' AND stage = 'queued'
                  AND check_at IS NULL AND pending IS NULL)
    OR EXISTS (SELECT 1 FROM message WHERE owner = ?1 AND role = 'shadow' AND stage = 'queued'
                  AND check_at IS NOT NULL AND pending IS NULL);

-- name: holds_for
SELECT EXISTS (SELECT 1 FROM message WHERE owner = ? AND role = 'shadow' AND stage = 'queued');

-- name: taken_from
SELECT id, role = 'primary' AND stage = 'queued' FROM message WHERE former_owner = ? AND id > ? ORDER BY id LIMIT ?;

-- name: open_questions
-- Runs several times a second. Without INDEXED BY, SQLite reads the whole table to keep the order of ids.
SELECT id, confirm_since, CASE WHEN pending IS NOT NULL THEN owner END
  FROM message INDEXED BY message_open WHERE confirmation <> 'none' AND stage IN ('queued', 'arriving') AND id > ?
 ORDER BY id LIMIT ?;

-- name: to_check
-- In the order of the index: after a return of the owner, a million copies have the same time.
SELECT id FROM message WHERE owner = ? AND check_at <= ? AND role = 'shadow' AND stage = 'queued'
 ORDER BY check_at, pending, id LIMIT ?;

-- name: check_copies
-- A sum that was wrong before stays wrong. Two searches: SQLite would answer an OR by reading every copy held for the owner, and again for each part.
UPDATE message SET check_at = :at, asked_sum = iif(asked_sum = row_sum(hex(id), confirmation, confirm_since, check_at),
                       row_sum(hex(id), confirmation, confirm_since, :at), asked_sum) WHERE id IN (
    SELECT id FROM (SELECT id FROM message WHERE owner = :owner AND role = 'shadow' AND stage = 'queued'
                       AND check_at IS NULL LIMIT :most)
    UNION ALL
    SELECT id FROM (SELECT id FROM message WHERE owner = :owner AND role = 'shadow' AND stage = 'queued'
                       AND check_at > :at LIMIT :most));

-- name: unchecked
SELECT EXISTS (SELECT 1 FROM message WHERE owner = :owner AND role = 'shadow' AND stage = 'queued' AND check_at IS NULL)
    OR EXISTS (SELECT 1 FROM message WHERE owner = :owner AND role = 'shadow' AND stage = 'queued' AND check_at > :at);

-- name: events_for
SELECT number, addressee, message_id, epoch, kind, argument, recipients, created_at, settled_at, row_sum
  FROM discard_event WHERE addressee = ? ORDER BY number LIMIT ?;

-- name: put_event
INSERT INTO discard_event (number, addressee, message_id, epoch, kind, argument, recipients, created_at, settled_at,
       row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, row_sum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9));

-- name: acknowledge_events
DELETE FROM discard_event WHERE addressee = ? AND number <= ?;

-- name: drop_events
DELETE FROM discard_event WHERE addressee = ?;

-- name: last_event
SELECT max(ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'discard_event'), 0),
           ifnull((SELECT max(number) FROM discard_event), 0));

-- name: put_tracking
INSERT INTO outbox (sequence, columns, row_sum)
VALUES (?1, ?2, row_sum(?1, ?2));

-- name: last_sequence
SELECT max(ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0),
           ifnull((SELECT max(sequence) FROM outbox), 0));

-- name: outbox_after
SELECT sequence, columns, row_sum FROM outbox WHERE sequence > ? ORDER BY sequence LIMIT ?;

-- name: outbox_about
SELECT sequence, columns, row_sum FROM outbox WHERE instr(columns, ?);

-- name: outbox_forget
DELETE FROM outbox WHERE sequence <= ?;

-- name: incarnations
SELECT number, token, began_at, first_event, opened_at, row_sum FROM incarnation ORDER BY number;

-- name: put_incarnation
INSERT INTO incarnation (number, token, began_at, first_event, opened_at, row_sum)
SELECT number, ?1, ?2, ?3, ?4, row_sum(number, ?1, ?2, ?3, ?4)
  FROM (SELECT ifnull(max(number), 0) + 1 AS number FROM incarnation);

-- name: prune_incarnations
-- Keeps incarnations of rows that still wait for the tracking log: a row is found there by its incarnation.
DELETE FROM incarnation WHERE number < (SELECT number FROM incarnation WHERE token = ?)
    AND number < ifnull(
        (SELECT max(number) FROM incarnation WHERE began_at < (SELECT min(sequence) FROM outbox)), 1 << 62);

-- name: meta
SELECT * FROM meta WHERE key = ?;

-- name: put_meta
INSERT OR REPLACE INTO meta (key, value, row_sum)
VALUES (?1, ?2, row_sum(?1, ?2));

-- name: put_crashes
INSERT OR REPLACE INTO poison (message_id, crashes, why, last_at, row_sum)
VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4));

-- name: crashes
SELECT message_id, crashes, why, last_at, row_sum FROM poison WHERE message_id = ?;

-- name: forget_crashes
DELETE FROM poison WHERE message_id = ?;

-- name: expire_crashes
DELETE FROM poison WHERE last_at < ?;

-- name: drop_meta
DELETE FROM meta WHERE key = ?;

-- name: ask_about
-- A sum that was wrong before stays wrong.
UPDATE message SET confirmation = 'ask', confirm_since = ?1,
       asked_sum = iif(asked_sum = row_sum(hex(id), confirmation, confirm_since, check_at),
                       row_sum(hex(id), 'ask', ?1, check_at), asked_sum)
 WHERE id = ?2;

-- name: hold_back
UPDATE recipient SET due_at = NULL WHERE message_id = ? AND due_at IS NOT NULL;

-- name: records
SELECT kind, key, told, kept_at, age, row_sum FROM record ORDER BY kind, key;

-- name: put_record
INSERT OR REPLACE INTO record (kind, key, told, kept_at, age, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: drop_record
DELETE FROM record WHERE kind = ? AND key = ?;

-- name: record_parts
SELECT kind, key, node, owner, told, row_sum FROM record_part ORDER BY kind, key, node, owner;

-- name: put_record_part
INSERT OR REPLACE INTO record_part (kind, key, node, owner, told, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: drop_record_parts
DELETE FROM record_part WHERE kind = ? AND key = ?;

-- name: drop_record_parts_of
DELETE FROM record_part WHERE node = ?;

-- name: resubmitting
SELECT COUNT(*) FROM message INDEXED BY message_resubmitted
 WHERE request IS NOT NULL AND stage <> 'safety_net' AND role = 'primary' AND stage = 'queued';

-- name: resubmittable
-- A part of the window, in the order of (settled_at, message_id), with a flag for the first recipient of each message
-- that the selector means: it never looks at more than LIMIT recipients, however few match.
SELECT r.settled_at, r.message_id,
       r.settled_at = (
           SELECT min(x.settled_at) FROM recipient x
            WHERE x.message_id = r.message_id AND x.settled_at BETWEEN :since AND :until
              AND x.status IN ('delivered', 'relayed')
              AND (:hops IS NULL OR x.next_hop IN (SELECT value FROM json_each(:hops))
            OR substr(x.next_hop, 1, instr(x.next_hop, '/') - 1) IN (SELECT value FROM json_each(:hops)))
              AND (:recipient IS NULL OR iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)) = :recipient)
              AND (:recipient_end IS NULL OR substr(iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)), -length(:recipient_end)) = :recipient_end))
       AND EXISTS (
           SELECT 1 FROM message m
            WHERE m.id = r.message_id AND m.stage = 'safety_net'
              AND CASE WHEN :owner IS NULL THEN m.role = 'primary' ELSE m.role = 'shadow' AND m.owner = :owner END
              AND (:message_id IS NULL OR m.message_id = :message_id)
              AND (:sender IS NULL OR iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)) = :sender)
              AND (:sender_end IS NULL OR substr(iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)), -length(:sender_end)) = :sender_end))
  FROM recipient r INDEXED BY recipient_settled
 WHERE r.settled_at IS NOT NULL AND r.settled_at <= :until AND (r.settled_at, r.message_id) > (:at, :after)
 ORDER BY r.settled_at, r.message_id LIMIT :most;

-- name: hop_peer
SELECT name, told, row_sum FROM hop_peer WHERE name = ?;

-- name: hop_peers_but
SELECT name, told, row_sum FROM hop_peer WHERE name <> ?;

-- name: put_hop_peer
INSERT OR REPLACE INTO hop_peer (name, told, row_sum)
VALUES (?1, ?2, row_sum(?1, ?2));

-- name: any_handed
SELECT EXISTS (SELECT 1 FROM handed);

-- name: handed
SELECT message_id, peer, database_id, their_id, numbers, row_sum FROM handed WHERE message_id = ?;

-- name: handed_as
SELECT message_id, peer, database_id, their_id, numbers, row_sum FROM handed WHERE database_id = ? AND their_id = ?
 ORDER BY message_id;

-- name: put_handed
INSERT OR REPLACE INTO handed (message_id, peer, database_id, their_id, numbers, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: drop_handed
DELETE FROM handed WHERE message_id = ?;

-- name: chores
SELECT work, member, at, step, place, row_sum FROM chore ORDER BY at, work, member;

-- name: put_chore
INSERT OR REPLACE INTO chore (work, member, at, step, place, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: clear_chores
DELETE FROM chore;

-- name: drop_chore
DELETE FROM chore WHERE work = ? AND member = ?;

-- name: exposed
SELECT id FROM message WHERE exposed = 1 AND id > ? ORDER BY id LIMIT ?;

-- name: due_hops
-- Jumps from hop to hop along the index: the length of a queue does not matter.
WITH RECURSIVE hop (name) AS (
    SELECT MIN(next_hop) FROM recipient WHERE due_at IS NOT NULL
    UNION ALL
    SELECT (SELECT MIN(next_hop) FROM recipient WHERE due_at IS NOT NULL AND next_hop > name) FROM hop
     WHERE name IS NOT NULL
)
SELECT iif(typeof(name) = 'text', CAST(name AS BLOB), NULL),
       (SELECT MIN(due_at) FROM recipient WHERE next_hop = name AND due_at IS NOT NULL)
  FROM hop WHERE name IS NOT NULL;

-- name: due_nowhere
-- The messages of a next hop whose name is unreadable, or whose first due time is impossible.
SELECT DISTINCT message_id FROM recipient
 WHERE due_at IS NOT NULL AND (typeof(next_hop) <> 'text' OR next_hop = CAST(? AS TEXT));

-- name: claim
SELECT DISTINCT message_id FROM recipient AS r WHERE next_hop = ? AND due_at <= ?
   AND NOT EXISTS (SELECT 1 FROM temp.active a WHERE a.message_id = r.message_id AND a.next_hop = r.next_hop)
 ORDER BY due_at LIMIT ?;

-- name: late_ones
-- A part of the queue after a place, with whether each message is so old that its sender has to be told.
-- Runs each second while a hop rests: of a young message two indexes are read, and no row.
SELECT r.due_at, r.message_id, r.number,
       m.received_at <= max(:expired, :delayed) AND EXISTS
       (SELECT 1 FROM recipient o WHERE o.message_id = r.message_id AND o.number = r.number
           AND max(m.received_at, ifnull(o.suspended, 0)) <= iif(o.delay_notified, :expired, max(:expired, :delayed)))
       AND NOT EXISTS
       (SELECT 1 FROM temp.active a WHERE a.message_id = r.message_id AND a.next_hop = r.next_hop)
  FROM recipient r INDEXED BY recipient_due
  CROSS JOIN message m INDEXED BY message_transit
    ON m.stage <> 'safety_net' AND m.stage = 'queued' AND m.role = 'primary' AND m.id = r.message_id
 WHERE r.next_hop = :hop AND r.due_at <= :now AND (r.due_at, r.message_id, r.number) > (:due, :id, :number)
 ORDER BY r.due_at, r.message_id, r.number LIMIT :most;

-- name: activate
INSERT OR IGNORE INTO temp.active (message_id, next_hop) VALUES (?, ?);

-- name: deactivate
DELETE FROM temp.active WHERE message_id = ? AND next_hop = ?;

-- name: to_hand_over
SELECT m.id FROM message AS m
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND m.confirmation <> 'ask'
   AND m.exposed = 0
   AND NOT EXISTS (SELECT 1 FROM temp.active a WHERE a.message_id = m.id)
   AND (:after IS NULL OR NOT EXISTS (SELECT 1 FROM recipient r WHERE r.message_id = m.id AND r.due_at <= :after))
 ORDER BY m.id LIMIT :most;

-- name: to_redirect
SELECT id FROM message
 WHERE stage <> 'safety_net' AND role = 'primary' AND stage = 'queued' AND received_at <= ? AND id > ?
 ORDER BY id LIMIT ?;

-- name: count_to_redirect
SELECT COUNT(*) FROM message
 WHERE stage <> 'safety_net' AND role = 'primary' AND stage = 'queued' AND received_at <= ?;

-- name: to_release
SELECT m.id FROM message AS m
 WHERE m.stage <> 'safety_net' AND m.role = 'primary' AND m.stage = 'queued' AND m.confirmation = 'none' AND m.id > ?
   AND EXISTS (SELECT 1 FROM holder h WHERE h.message_id = m.id AND h.state <> 'superseded')
 ORDER BY m.id LIMIT ?;

-- name: sent_to
SELECT next_hop FROM temp.active WHERE message_id = ?;

-- name: being_sent
SELECT EXISTS (SELECT 1 FROM temp.active WHERE message_id = ? AND next_hop <> ?);

-- name: awaited
SELECT owner, COUNT(*) FROM message
 WHERE role = 'shadow' AND stage = 'queued' AND offered_in = ? AND check_at IS NOT NULL GROUP BY owner;

-- name: settled_between
-- Leaves out messages whose report or journal copy is not safe yet (core/safety_net/expiry.py), and those that a hop
-- has: they would always come first.
SELECT id FROM message
 WHERE settled_at > ? AND settled_at <= ?
   AND NOT EXISTS (SELECT 1 FROM recipient r WHERE r.message_id = message.id
                    AND (r.report IS NOT NULL OR r.journal IS NOT NULL))
   AND NOT EXISTS (SELECT 1 FROM hop_shadow h WHERE h.message_id = message.id)
 ORDER BY settled_at LIMIT ?;

-- name: waiting_since_before
SELECT id FROM message
 WHERE settled_at <= ?
   AND EXISTS (SELECT 1 FROM recipient r WHERE r.message_id = message.id
                    AND (r.report IS NOT NULL OR r.journal IS NOT NULL))
 ORDER BY settled_at LIMIT ?;

-- name: held_since_before
SELECT id, received_at <= ?1 AND ifnull(renewed_at <= ?1, 1) AND damage IS NULL FROM message
 WHERE stage <> 'safety_net' AND role = 'shadow' AND stage = 'queued' AND id > ?2 ORDER BY id LIMIT ?3;

-- name: expire_events
-- What an operator ordered waits for its addressee as long as that may have a copy. A damaged row is made again first.
DELETE FROM discard_event
 WHERE created_at <= ? AND kind NOT IN ('taken', 'suspended', 'resumed') AND argument <> 'removed'
   AND ifnull(row_sum = row_sum(number, addressee, message_id, epoch, kind, argument, recipients, created_at, settled_at),
              1);

-- name: drop_event
DELETE FROM discard_event WHERE number = ?;

-- name: orders_of
SELECT number, addressee, message_id, epoch, kind, argument, recipients, created_at, settled_at, row_sum
  FROM discard_event INDEXED BY discard_event_orders
 WHERE message_id = ? AND (kind = 'suspended' OR kind = 'resumed' OR argument = 'removed') ORDER BY addressee;

-- name: expire_outcomes
-- The row itself has to be old, whatever the index says. Likewise below.
DELETE FROM outcome WHERE message_id IN (SELECT message_id FROM outcome WHERE keep_until <= ?1) AND +keep_until <= ?1;

-- name: expire_tombstones
DELETE FROM tombstone WHERE message_id IN (SELECT message_id FROM tombstone WHERE keep_until <= ?1) AND +keep_until <= ?1;

-- name: unacknowledged
SELECT message_id, client, envelope, content, received_at, row_sum FROM unacknowledged
 WHERE content = ? AND envelope = ? AND client = ? AND received_at > ?
 ORDER BY received_at, message_id;

-- name: put_unacknowledged
INSERT OR REPLACE INTO unacknowledged (message_id, client, envelope, content, received_at, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5));

-- name: drop_unacknowledged
DELETE FROM unacknowledged WHERE message_id = ?;

-- name: expire_unacknowledged
DELETE FROM unacknowledged
 WHERE message_id IN (SELECT message_id FROM unacknowledged WHERE received_at <= ?1) AND +received_at <= ?1;

-- name: queued_for
-- Once for each recipient that waits for a next hop.
SELECT message_id FROM recipient INDEXED BY recipient_due WHERE next_hop = ? AND due_at IS NOT NULL LIMIT ?;

-- name: everything
SELECT id, size FROM message WHERE id > ? ORDER BY id LIMIT ?;

-- name: derived_due
SELECT due_at FROM recipient WHERE message_id = ? ORDER BY number;

-- name: page_in_transit
SELECT id FROM message WHERE stage <> 'safety_net' AND id > ? ORDER BY id LIMIT ?;

-- name: hop_shadow_counts
SELECT hop, COUNT(*) FROM hop_shadow GROUP BY hop;

-- name: hop_shadow
SELECT message_id, hop, since, told, row_sum FROM hop_shadow WHERE message_id = ? AND hop = ?;

-- name: hop_shadows_of
SELECT message_id, hop, since, told, row_sum FROM hop_shadow WHERE message_id = ? ORDER BY hop;

-- name: hop_shadows
SELECT message_id, hop, since, told, row_sum FROM hop_shadow WHERE hop = ? AND message_id > ? ORDER BY message_id LIMIT ?;

-- name: hop_shadows_before
SELECT message_id FROM hop_shadow WHERE since <= ? ORDER BY since LIMIT ?;

-- name: add_hop_shadow
INSERT OR IGNORE INTO hop_shadow (message_id, hop, since, told, row_sum)
VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4));

-- name: put_hop_shadow
INSERT OR REPLACE INTO hop_shadow (message_id, hop, since, told, row_sum)
VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4));

-- name: drop_hop_shadow
DELETE FROM hop_shadow WHERE message_id = ? AND hop = ?;

-- name: drop_hop_shadows_of
DELETE FROM hop_shadow WHERE message_id = ? RETURNING hop;

-- name: hop_shadow_oldest
SELECT min(since) FROM hop_shadow WHERE hop = ?;
