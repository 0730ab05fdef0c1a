"""From numbers of examples to checked records: the one reader of shards, which knows no framework."""
