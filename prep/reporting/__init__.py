"""Show a dataset to people: one page of HTML."""
