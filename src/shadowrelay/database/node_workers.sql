-- name: all_workers
SELECT node, workers FROM node_workers;

-- name: put_workers
INSERT INTO node_workers (node, workers) VALUES (?, ?)
ON CONFLICT (node) DO UPDATE SET workers = excluded.workers;
