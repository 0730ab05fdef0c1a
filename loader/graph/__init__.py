"""TensorFlow's raw operations, calls of Python, and the stages and interval arithmetic built from them."""
