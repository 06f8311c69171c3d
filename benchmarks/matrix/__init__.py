"""Programs of all kinds, plain and under `run` and `watch`: what they do is to be the same."""
