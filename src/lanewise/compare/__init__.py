"""Compares runs: aligned kernels and operators, what changed and what did not, with statistics; and budgets to hold."""
