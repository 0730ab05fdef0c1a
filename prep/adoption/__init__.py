"""Write a manifest for TFRecord files that another tool wrote."""
