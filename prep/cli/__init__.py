"""The command line: one file per verb, and the parser that knows them all."""
