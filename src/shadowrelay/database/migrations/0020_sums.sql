-- Every row that a decision reads has a sum over its other columns, in their order: its identity among them. NULL: a row of a
-- version before; it gets its sum when it is written next, or when the scrub reads it.
ALTER TABLE meta ADD COLUMN row_sum INTEGER;
ALTER TABLE incarnation ADD COLUMN row_sum INTEGER;
ALTER TABLE member ADD COLUMN row_sum INTEGER;
ALTER TABLE discard_event ADD COLUMN row_sum INTEGER;
ALTER TABLE outcome ADD COLUMN row_sum INTEGER;
ALTER TABLE tombstone ADD COLUMN row_sum INTEGER;
ALTER TABLE outbox ADD COLUMN row_sum INTEGER;
ALTER TABLE damaged ADD COLUMN row_sum INTEGER;
ALTER TABLE chore ADD COLUMN row_sum INTEGER;
ALTER TABLE request ADD COLUMN row_sum INTEGER;
ALTER TABLE progress ADD COLUMN row_sum INTEGER;
ALTER TABLE hop_peer ADD COLUMN row_sum INTEGER;
ALTER TABLE handed RENAME COLUMN sum TO row_sum;
ALTER TABLE hop_shadow RENAME COLUMN sum TO row_sum;
ALTER TABLE unacknowledged ADD COLUMN row_sum INTEGER;
ALTER TABLE switch ADD COLUMN row_sum INTEGER;
ALTER TABLE job ADD COLUMN row_sum INTEGER;
ALTER TABLE job_progress ADD COLUMN row_sum INTEGER;
ALTER TABLE suspension ADD COLUMN row_sum INTEGER;
ALTER TABLE poison ADD COLUMN row_sum INTEGER;
ALTER TABLE announced_member ADD COLUMN row_sum INTEGER;
ALTER TABLE node_workers ADD COLUMN row_sum INTEGER;
