"""The command line: arguments derived from public functions, files of options."""
