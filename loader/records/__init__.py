"""From positions in an epoch to records: which intervals of which shards are read, and in which streams."""
