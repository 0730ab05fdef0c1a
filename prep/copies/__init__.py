"""Making datasets of others, whose records are copied as they stand."""
