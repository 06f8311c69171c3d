"""What `python -m benchmarks.kernels` measures: see `groups` for all of it, `case` for what a case consists of."""
