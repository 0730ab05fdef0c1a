"""CSV, JSON Lines and Parquet tables, with columns of image paths."""
