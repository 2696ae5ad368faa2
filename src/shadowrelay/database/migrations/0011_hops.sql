-- Hop by hop, between boundaries. A peer beyond our boundary with which messages are tracked, as a member is known: JSON, read and
-- written whole.
CREATE TABLE hop_peer (
    name TEXT PRIMARY KEY,
    told TEXT NOT NULL
) WITHOUT ROWID;

-- Who handed a message over, under which id of its own, and which of its recipients ours are (its numbers in the order of ours).
CREATE TABLE handed (
    message_id  TEXT PRIMARY KEY,
    peer        TEXT NOT NULL,
    database_id TEXT NOT NULL,
    their_id    TEXT NOT NULL,
    numbers     TEXT NOT NULL,
    sum         INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX handed_by ON handed (database_id, their_id);

-- The shadow queue of a hop: recipients of our messages that it has taken, and of which it has not said yet that they are delivered.
CREATE TABLE hop_shadow (
    message_id TEXT NOT NULL,
    hop        TEXT NOT NULL,
    since      INTEGER NOT NULL,
    told       TEXT NOT NULL,
    sum        INTEGER NOT NULL,
    PRIMARY KEY (message_id, hop)
) WITHOUT ROWID;
CREATE INDEX hop_shadow_of ON hop_shadow (hop, message_id);
CREATE INDEX hop_shadow_since ON hop_shadow (since);

-- Delayed acknowledgement: messages whose sender has no 250 yet. Digests are those of what the client sent.
CREATE TABLE unacknowledged (
    message_id  TEXT PRIMARY KEY,
    client      TEXT NOT NULL,
    envelope    TEXT NOT NULL,
    content     TEXT NOT NULL,
    received_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX unacknowledged_like ON unacknowledged (content, envelope, client);
CREATE INDEX unacknowledged_since ON unacknowledged (received_at);

-- Settings that operators switch for all members at once.
CREATE TABLE switch (
    name TEXT PRIMARY KEY,
    told TEXT NOT NULL
) WITHOUT ROWID;
