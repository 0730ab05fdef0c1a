"""From groups of records to batches of tensors, in the graph."""
