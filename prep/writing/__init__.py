"""Keep the folder of one build, and write one shard from pieces."""
