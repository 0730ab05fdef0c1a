"""Records as they are stored: their bytes, checked, and their values as arrays of NumPy."""
