"""TensorFlow's raw operations, and the dataset stages and interval arithmetic built from them."""
