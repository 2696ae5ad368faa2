-- name: policy
SELECT domain, mode, mx, max_age, identifier, fetched_at, used_at, row_sum FROM sts_policy WHERE domain = ?;

-- name: policies
SELECT domain, mode, mx, max_age, identifier, fetched_at, used_at, row_sum FROM sts_policy WHERE domain > ?
 ORDER BY domain LIMIT ?;

-- name: put_policy
INSERT OR REPLACE INTO sts_policy (domain, mode, mx, max_age, identifier, fetched_at, used_at, row_sum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, row_sum(?1, ?2, ?3, ?4, ?5, ?6, ?7));

-- name: count_policies
SELECT count(*) FROM sts_policy;

-- name: make_room
SELECT domain FROM sts_policy WHERE mode <> 'enforce' OR used_at <= ? ORDER BY mode = 'enforce', used_at LIMIT ?;

-- name: drop_policy
DELETE FROM sts_policy WHERE domain = ?;
