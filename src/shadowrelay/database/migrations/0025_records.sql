-- One table for the records that every member has, and one for how far each node is with them. kept_at: when this node
-- first had the record, by its own reckoned time; age: how long it certainly had been there by then, on other nodes.
-- What was kept before counts from now. A row that differs from its sum is not taken over.
CREATE TABLE record (
    kind    TEXT NOT NULL,
    key     TEXT NOT NULL,
    told    TEXT NOT NULL,
    kept_at INTEGER NOT NULL,
    age     INTEGER NOT NULL,
    row_sum INTEGER,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

CREATE TABLE record_part (
    kind    TEXT NOT NULL,
    key     TEXT NOT NULL,
    node    TEXT NOT NULL,
    owner   TEXT NOT NULL,
    told    TEXT NOT NULL,
    row_sum INTEGER,
    PRIMARY KEY (kind, key, node, owner)
) WITHOUT ROWID;

WITH before (kind, key, told, found, wanted) AS (
    SELECT 'request', id, told, row_sum, row_sum(id, told) FROM request
    UNION ALL SELECT 'job', id, told, row_sum, row_sum(id, told) FROM job
    UNION ALL SELECT 'suspension', next_hop, told, row_sum, row_sum(next_hop, told) FROM suspension
    UNION ALL SELECT 'switch', name, told, row_sum, row_sum(name, told) FROM switch
), alive (at) AS (
    SELECT CAST(ifnull((SELECT value FROM meta WHERE key = 'alive_at'), 0) AS INTEGER)
)
INSERT INTO record (kind, key, told, kept_at, age, row_sum)
SELECT kind, key, told, at, 0, row_sum(kind, key, told, at, 0) FROM before, alive
 WHERE ifnull(found, wanted) = wanted;

WITH before (kind, key, node, owner, told, found, wanted) AS (
    SELECT 'request', request, node, owner, told, row_sum, row_sum(request, node, owner, told) FROM progress
    UNION ALL SELECT 'job', job, node, '', told, row_sum, row_sum(job, node, told) FROM job_progress
)
INSERT INTO record_part (kind, key, node, owner, told, row_sum)
SELECT kind, key, node, owner, told, row_sum(kind, key, node, owner, told) FROM before
 WHERE ifnull(found, wanted) = wanted;

DROP TABLE request;
DROP TABLE progress;
DROP TABLE job;
DROP TABLE job_progress;
DROP TABLE suspension;
DROP TABLE switch;
