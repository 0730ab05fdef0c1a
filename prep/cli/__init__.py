"""The command line: arguments derived from public functions, the table of verbs, files of options."""
