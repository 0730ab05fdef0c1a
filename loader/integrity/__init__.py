"""Check shards against the manifest before they are read, and report damaged records."""
