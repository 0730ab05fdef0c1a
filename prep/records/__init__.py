"""Read and write record frames, tf.train.Example without TensorFlow, and the file of one shard."""
