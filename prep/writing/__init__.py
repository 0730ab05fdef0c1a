"""The build area, and writing one shard."""
