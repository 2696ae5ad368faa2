-- tls: what the sender wants of TLS (RFC 8689): 'required' or 'waived'.
ALTER TABLE message ADD COLUMN tls TEXT;
