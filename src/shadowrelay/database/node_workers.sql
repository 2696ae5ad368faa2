-- name: all_workers
SELECT node, workers, row_sum FROM node_workers;

-- name: put_workers
INSERT OR REPLACE INTO node_workers (node, workers, row_sum)
VALUES (?1, ?2, row_sum(?1, ?2));
