"""Benchmarks: measured in one run, interleaved, and reported as ratios."""
