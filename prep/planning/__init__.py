"""Which example goes into which split and shard: pure functions of a listing and the options."""
