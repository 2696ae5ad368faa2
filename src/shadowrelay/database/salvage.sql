-- Out of a database that cannot be read whole, into a new one of the same schema.

-- name: rows
SELECT * FROM {table} ORDER BY {key} {order};

-- name: some
SELECT * FROM {table} WHERE {key} = ?;

-- name: keys
SELECT {key} FROM {table} ORDER BY {key} {order};

-- name: put
INSERT OR IGNORE INTO {table} VALUES ({values});

-- name: in_transit
SELECT id FROM message INDEXED BY message_transit WHERE stage <> 'safety_net';

-- name: sequences
SELECT name, seq FROM sqlite_sequence;

-- name: put_sequence
INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?);

-- name: unread
INSERT OR IGNORE INTO damaged SELECT ?1, ?2, ?3, '', 0 WHERE NOT EXISTS (SELECT 1 FROM message WHERE id = ?1);

-- name: unread_recipients
-- A row of a version before digests does not show that a recipient is missing.
INSERT OR IGNORE INTO damaged
SELECT id, ?1, ?2, '', 0 FROM message WHERE envelope_digest IS NULL AND stage <> 'safety_net';

-- name: count_unread
SELECT COUNT(*) FROM damaged WHERE found_at = ?;
