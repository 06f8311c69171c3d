"""CUDA graphs of a recorded program: from which place each of their nodes was captured."""
