-- name: announced
SELECT name, serial, signed, row_sum FROM announced_member ORDER BY name;

-- name: announced_of
SELECT name, serial, signed, row_sum FROM announced_member WHERE name = ?;

-- name: count_announced
SELECT count(*) FROM announced_member;

-- name: put_announced
INSERT OR REPLACE INTO announced_member (name, serial, signed, row_sum)
VALUES (?1, ?2, ?3, row_sum(?1, ?2, ?3));
