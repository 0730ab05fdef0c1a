"""The dataset's metadata in the formats of other tools, one file per tool."""
