-- Reads and changes the rows of a message in a transport database that no node uses. Rows are read whole.

-- name: message
SELECT * FROM message WHERE id = ?;

-- name: recipient
SELECT * FROM recipient WHERE message_id = ?;

-- name: holder
SELECT * FROM holder WHERE message_id = ?;

-- name: discard_event
SELECT * FROM discard_event WHERE message_id = ?;

-- name: outcome
SELECT * FROM outcome WHERE message_id = ?;

-- name: tombstone
SELECT * FROM tombstone WHERE message_id = ?;

-- name: content
SELECT message_id, data, path FROM content WHERE message_id = ?;

-- name: shared_content
SELECT message_id, content_of FROM shared_content WHERE message_id = ?;

-- name: drop_message
DELETE FROM message WHERE id = ?;

-- name: drop_recipient
DELETE FROM recipient WHERE message_id = ?;

-- name: drop_holder
DELETE FROM holder WHERE message_id = ?;

-- name: drop_content
DELETE FROM content WHERE message_id = ?;

-- name: drop_shared_content
DELETE FROM shared_content WHERE message_id = ?;

-- name: put
INSERT INTO {table} VALUES ({values});

-- name: indexes
SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY name;

-- name: root
SELECT rootpage FROM sqlite_schema WHERE name = ?;
