"""The mailbox service: stands before a store, and delivers each message once."""
