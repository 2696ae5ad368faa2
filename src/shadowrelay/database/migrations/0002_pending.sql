-- A promotion is first pending: why a shadow copy is to be promoted, once the other members were asked.
ALTER TABLE message ADD COLUMN pending TEXT;
