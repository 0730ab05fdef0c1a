"""Measure how fast this machine reads a dataset, stage by stage, and which stage is the limit."""
