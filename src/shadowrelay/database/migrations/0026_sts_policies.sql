-- Policies of MTA-STS, each until its end. mx: its patterns, one a line. used_at: when mail last asked for it, to about an hour.
CREATE TABLE sts_policy (
    domain     TEXT PRIMARY KEY NOT NULL,
    mode       TEXT NOT NULL,
    mx         TEXT NOT NULL,
    max_age    INTEGER NOT NULL,
    identifier TEXT NOT NULL,
    fetched_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    row_sum    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX sts_policy_used ON sts_policy (used_at);
