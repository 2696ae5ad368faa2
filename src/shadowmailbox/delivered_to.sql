-- The DeliveredTo table of a mailbox server: what was put into which mailbox, and when.

-- name: create
CREATE TABLE IF NOT EXISTS delivered_to (
    message_id   TEXT NOT NULL,
    date         TEXT NOT NULL,
    recipient    TEXT NOT NULL,
    delivered_at INTEGER NOT NULL,  -- milliseconds since 1970, UTC
    row_sum      INTEGER,           -- over the other columns; NULL in a row of a version before sums
    PRIMARY KEY (message_id, date, recipient)
) STRICT, WITHOUT ROWID;

-- name: columns
SELECT name FROM pragma_table_info('delivered_to');

-- name: add_sums
ALTER TABLE delivered_to ADD COLUMN row_sum INTEGER;

-- name: create_index
CREATE INDEX IF NOT EXISTS delivered_to_by_time ON delivered_to (delivered_at);

-- name: known
SELECT message_id, date, recipient, delivered_at, row_sum FROM delivered_to
 WHERE message_id = ? AND date = ? AND recipient = ? AND delivered_at >= ?;

-- name: record
INSERT OR REPLACE INTO delivered_to (message_id, date, recipient, delivered_at, row_sum)
VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4));

-- name: sweep
DELETE FROM delivered_to WHERE delivered_at < ?;

-- Times of what ``count`` and ``forget`` are about: from the first, before the second.

-- name: oldest
SELECT min(delivered_at) FROM delivered_to WHERE delivered_at >= ?;

-- name: rows
SELECT count(*) FROM delivered_to;

-- name: count
SELECT count(*) FROM delivered_to WHERE delivered_at >= ? AND delivered_at < ?;

-- name: count_of_recipient
SELECT count(*) FROM delivered_to WHERE delivered_at >= ? AND delivered_at < ? AND recipient = ? COLLATE NOCASE;

-- name: forget
DELETE FROM delivered_to WHERE delivered_at >= ? AND delivered_at < ?;

-- name: forget_recipient
DELETE FROM delivered_to WHERE delivered_at >= ? AND delivered_at < ? AND recipient = ? COLLATE NOCASE;

-- name: by_domain
SELECT substr(recipient, length(rtrim(recipient, replace(recipient, '@', ''))) + 1),
       count(*), min(delivered_at), max(delivered_at)
FROM delivered_to GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?;

-- name: ends
SELECT count(*), min(delivered_at), max(delivered_at) FROM delivered_to;
