"""Small faults of the product, each with the test that finds it; see tests/seeded_faults.py."""
