"""Readers of other tools, each run in an environment of its own by benchmarks/resume_peers.py."""
