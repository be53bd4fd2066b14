"""A GPU session in a box: `python -m benchmarks.gpu`."""
