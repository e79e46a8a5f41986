"""The laboratory: benchmarks, experiments after the papers, and simulated worlds. It is no part of the product's wheel.

It drives what the product and the ring are made of; its commands are found by entry points.
"""
