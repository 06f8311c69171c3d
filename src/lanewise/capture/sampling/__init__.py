"""Samples of what the warps of a program's kernels wait for, taken in bursts while it runs, by CUPTI."""
