"""Softmax and norms: kernels that work on whole rows."""
