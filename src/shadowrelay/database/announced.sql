-- name: announced
SELECT signed FROM announced_member ORDER BY name;

-- name: serial_of
SELECT serial FROM announced_member WHERE name = ?;

-- name: count_announced
SELECT count(*) FROM announced_member;

-- name: put_announced
INSERT OR REPLACE INTO announced_member (name, serial, signed) VALUES (?, ?, ?);
