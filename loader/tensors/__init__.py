"""Turn records into batches of tensors, in the graph."""
