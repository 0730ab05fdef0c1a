"""The same dataset in the words of other tools, one file a tool; written after the commit."""
