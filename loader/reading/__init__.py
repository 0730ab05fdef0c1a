"""Turn numbers of examples into checked records: the one reader of shards, which knows no framework."""
