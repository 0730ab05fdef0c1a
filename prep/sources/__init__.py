"""The kinds of input, one a file; ``listing`` holds what they share."""
