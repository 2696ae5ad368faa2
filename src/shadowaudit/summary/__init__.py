"""What mail did, from the gold tables: computed, and shown as text, JSON and a page. No Java, no Spark."""
