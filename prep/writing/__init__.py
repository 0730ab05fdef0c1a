"""Write one shard, and keep the state of a build in its build area."""
