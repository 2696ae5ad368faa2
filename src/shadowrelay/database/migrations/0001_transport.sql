-- The transport database. Times are microseconds since 1970-01-01 UTC.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- One row per open of this database: the lineage. first_event: the first discard event number it may give.
CREATE TABLE incarnation (
    number         INTEGER PRIMARY KEY,
    token          TEXT NOT NULL UNIQUE,
    began_at       INTEGER NOT NULL,  -- tracking sequence
    first_event    INTEGER NOT NULL,
    opened_at      INTEGER NOT NULL
);

CREATE TABLE member (
    name                TEXT PRIMARY KEY,
    database_id         TEXT,
    beginnings          TEXT,     -- <incarnation>@<sequence>,…
    sequence            INTEGER,
    knows_ours          TEXT,
    applied_incarnation TEXT,
    applied_event       INTEGER,
    retired             INTEGER NOT NULL
) WITHOUT ROWID;

-- A copy of a message: the primary one, or a shadow.
CREATE TABLE message (
    id             TEXT PRIMARY KEY,
    epoch          INTEGER NOT NULL,
    rank           INTEGER NOT NULL,
    role           TEXT NOT NULL,
    stage          TEXT NOT NULL,
    owner          TEXT NOT NULL,
    owner_database TEXT NOT NULL,
    offered_in     TEXT NOT NULL,
    sender         TEXT NOT NULL,
    size           INTEGER NOT NULL,
    body           TEXT NOT NULL,
    smtputf8       INTEGER NOT NULL,
    ret            TEXT,
    envid          TEXT,
    message_id     TEXT NOT NULL,
    subject        TEXT NOT NULL,
    ranks_given    INTEGER NOT NULL,
    confirmation   TEXT NOT NULL,
    confirm_since  INTEGER,
    former_owner   TEXT,
    check_at       INTEGER,
    received_at    INTEGER NOT NULL,
    settled_at     INTEGER,
    reports_on     TEXT,
    exposed        INTEGER NOT NULL   -- derived: in transit, and no other member is known to hold a copy
) WITHOUT ROWID;

CREATE INDEX message_held ON message (owner) WHERE role = 'shadow' AND stage = 'queued';
CREATE INDEX message_check ON message (owner, check_at) WHERE check_at IS NOT NULL;
CREATE INDEX message_confirm ON message (confirmation) WHERE confirmation <> 'none';
CREATE INDEX message_taken ON message (former_owner) WHERE former_owner IS NOT NULL;
CREATE INDEX message_settled ON message (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX message_transit ON message (stage, role, id, received_at) WHERE stage <> 'safety_net';
CREATE INDEX message_exposed ON message (exposed) WHERE exposed = 1;

CREATE TABLE recipient (
    message_id     TEXT NOT NULL REFERENCES message (id),
    number         INTEGER NOT NULL,
    address        TEXT NOT NULL,
    next_hop       TEXT NOT NULL,
    notify         TEXT NOT NULL,
    orcpt          TEXT,
    status         TEXT NOT NULL,
    attempts       INTEGER NOT NULL,
    next_attempt   INTEGER,
    last_reply     TEXT NOT NULL,
    delay_notified INTEGER NOT NULL,
    report         TEXT,
    due_at         INTEGER,  -- derived: when to send it; null unless this node owns the message and may send it
    PRIMARY KEY (message_id, number)
) WITHOUT ROWID;

CREATE INDEX recipient_due ON recipient (next_hop, due_at) WHERE due_at IS NOT NULL;

CREATE TABLE holder (
    message_id  TEXT NOT NULL REFERENCES message (id),
    database_id TEXT NOT NULL,
    name        TEXT NOT NULL,
    incarnation TEXT,
    sequence    INTEGER,
    rank        INTEGER NOT NULL,
    state       TEXT NOT NULL,
    PRIMARY KEY (message_id, database_id)
) WITHOUT ROWID;

CREATE INDEX holder_name ON holder (name);

-- Stored once, never rewritten: here, or in a file that was flushed to disk before its row.
CREATE TABLE content (
    message_id TEXT PRIMARY KEY,
    data       BLOB,
    path       TEXT,
    CHECK ((data IS NULL) <> (path IS NULL))
);

-- Numbers are never given twice in one database, not even after the table was emptied.
CREATE TABLE discard_event (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    addressee  TEXT NOT NULL,
    message_id TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    argument   TEXT NOT NULL,
    recipients TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE INDEX discard_event_addressee ON discard_event (addressee, number);

-- What is remembered of messages whose copy is gone.
CREATE TABLE outcome (
    message_id TEXT PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    delivered  TEXT NOT NULL,
    keep_until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tombstone (
    message_id TEXT PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    keep_until INTEGER NOT NULL
) WITHOUT ROWID;

-- Tracking events, in the transaction that makes them true, until a log file holds them.
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    columns  TEXT NOT NULL
);
