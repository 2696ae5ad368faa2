-- The DeliveredTo table of a mailbox server: what was put into which mailbox, and when.

-- name: create
CREATE TABLE IF NOT EXISTS delivered_to (
    message_id   TEXT NOT NULL,
    date         TEXT NOT NULL,
    recipient    TEXT NOT NULL,
    delivered_at INTEGER NOT NULL,  -- milliseconds since 1970, UTC
    PRIMARY KEY (message_id, date, recipient)
) STRICT, WITHOUT ROWID;

-- name: create_index
CREATE INDEX IF NOT EXISTS delivered_to_by_time ON delivered_to (delivered_at);

-- name: known
SELECT 1 FROM delivered_to WHERE message_id = ? AND date = ? AND recipient = ? AND delivered_at >= ?;

-- name: record
INSERT INTO delivered_to (message_id, date, recipient, delivered_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (message_id, date, recipient) DO UPDATE SET delivered_at = excluded.delivered_at;

-- name: sweep
DELETE FROM delivered_to WHERE delivered_at < ?;
