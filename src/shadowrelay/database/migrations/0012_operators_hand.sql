-- The operator's hand. suspended: until when an operator wants a recipient to wait. ordered_at: when the last order to suspend or
-- to resume it was given.
ALTER TABLE recipient ADD COLUMN suspended INTEGER;
ALTER TABLE recipient ADD COLUMN ordered_at INTEGER;

-- Events that tell of an operator's order. They wait until their addressees have acknowledged them: until then the order is pending.
CREATE INDEX discard_event_orders ON discard_event (message_id, addressee)
 WHERE kind = 'suspended' OR kind = 'resumed' OR argument = 'removed';
