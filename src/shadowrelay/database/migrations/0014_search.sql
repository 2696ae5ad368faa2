-- An operator finds a message by an address or its Message-ID header among millions. Addresses are compared without regard to the
-- case of ASCII letters, as lower() of SQLite does.
CREATE INDEX recipient_address ON recipient (lower(address));
CREATE INDEX message_sender ON message (lower(sender));
CREATE INDEX message_header ON message (message_id);
