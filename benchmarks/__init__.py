"""Measurements, most of them of the real page in a real Chromium: `python -m benchmarks NAME`."""
