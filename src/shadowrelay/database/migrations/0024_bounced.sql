-- What members have not acknowledged yet of failures: counted once a second while a job that bounces messages waits for it.
CREATE INDEX discard_event_failed ON discard_event (created_at, message_id) WHERE argument = 'failed';
