"""Making a dataset of TFRecord files that were written elsewhere."""
