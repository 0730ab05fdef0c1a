"""Which example comes at which position of an epoch, as arithmetic."""
