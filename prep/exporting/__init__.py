"""Write the examples of a dataset in the formats of other tools, one file per format."""
