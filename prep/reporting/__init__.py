"""Write one HTML page that shows a dataset to people."""
