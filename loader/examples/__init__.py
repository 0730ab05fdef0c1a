"""What examples are delivered as, described for the graph and for NumPy alike."""
