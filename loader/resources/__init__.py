"""Memory budget and disk cache."""
