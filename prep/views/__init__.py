"""Write the metadata of a dataset for people and for other tools."""
