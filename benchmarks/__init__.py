"""Measurements of the real page in a real Chromium. Each module prints JSON: `python -m benchmarks.boot`."""
