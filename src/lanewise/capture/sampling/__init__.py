"""Samples of what the warps of a program's kernels wait for, taken while it runs, by CUPTI."""
