"""Experiments, training and benchmarks. The library never imports this room."""
