"""What a settled message leads to: events for everybody that may hold a copy, and reports."""
