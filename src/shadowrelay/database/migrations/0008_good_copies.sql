-- A copy counts only if it is a good copy: digests of content and envelope, and a sum over each row. NULL: a row of a
-- version before them; it gets them when it is read or written next (meta 'rows_from_before' says that there may be
-- such rows). asked_sum is apart, because its columns are changed for many messages at once.
ALTER TABLE message ADD COLUMN content_digest TEXT;
ALTER TABLE message ADD COLUMN envelope_digest TEXT;
ALTER TABLE message ADD COLUMN digests_late INTEGER;
ALTER TABLE message ADD COLUMN damage TEXT;
ALTER TABLE message ADD COLUMN renewed_at INTEGER;
ALTER TABLE message ADD COLUMN row_sum INTEGER;
ALTER TABLE message ADD COLUMN asked_sum INTEGER;
ALTER TABLE recipient ADD COLUMN row_sum INTEGER;
ALTER TABLE holder ADD COLUMN row_sum INTEGER;
INSERT INTO meta (key, value) SELECT 'rows_from_before', '1' WHERE EXISTS (SELECT 1 FROM message);

CREATE INDEX message_damage ON message (id) WHERE damage IS NOT NULL;

-- Messages whose rows cannot be believed. Those rows stay as they are, but for their stage: nobody finds them any more.
CREATE TABLE damaged (
    message_id TEXT PRIMARY KEY,
    found_at   INTEGER NOT NULL,
    what       TEXT NOT NULL,
    settled    TEXT NOT NULL,     -- <number>:<status>,… as far as it is known from elsewhere
    set_aside  INTEGER NOT NULL
) WITHOUT ROWID;

-- An arrival that ended without a 250: only that lets its holder drop the copy.
ALTER TABLE outcome ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
