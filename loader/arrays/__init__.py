"""Turn records into batches of NumPy arrays, in the order of ``load``, without TensorFlow."""
