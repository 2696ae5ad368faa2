-- Messages that were in hand when this process crashed, and reported it itself. ``why``: of each crash, a line.
CREATE TABLE poison (
    message_id TEXT PRIMARY KEY,
    crashes    INTEGER NOT NULL,
    why        TEXT NOT NULL,
    last_at    INTEGER NOT NULL
) WITHOUT ROWID;
