"""Adapters that hand the batches of ``load``, or their order, to PyTorch, Keras, JAX and Grain."""
