"""Find leaks between splits, duplicates, label conflicts, rare classes and odd sizes in a sound dataset."""
