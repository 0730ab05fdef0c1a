"""NumPy arrays, in memory, in .npy files and in .npz archives."""
