"""Hold what a caller of ``load`` can ask for, as values that check themselves."""
