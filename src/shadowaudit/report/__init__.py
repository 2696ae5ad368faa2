"""What people read: the report page and its charts."""
