"""The command line: one file per verb, the table of verbs, and the parser."""
