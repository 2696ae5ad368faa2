-- What operators want done to messages in the queues. What decides is in one column, as JSON: it is read and written
-- whole.
CREATE TABLE job (
    id   TEXT PRIMARY KEY,
    told TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE job_progress (
    job  TEXT NOT NULL,
    node TEXT NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (job, node)
) WITHOUT ROWID;

-- Queues that were suspended, also those that were resumed since.
CREATE TABLE suspension (
    next_hop TEXT PRIMARY KEY,
    told     TEXT NOT NULL
) WITHOUT ROWID;

-- What members have not acknowledged yet of removals and suspensions: counted once a second while a job waits for it.
CREATE INDEX discard_event_removed ON discard_event (created_at, message_id) WHERE argument = 'removed';
CREATE INDEX discard_event_suspended ON discard_event (created_at, message_id) WHERE kind = 'suspended';
CREATE INDEX discard_event_resumed ON discard_event (created_at, message_id) WHERE kind = 'resumed';
