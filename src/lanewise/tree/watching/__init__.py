"""Trees that the native collector took of a running program, and what of them is start-up."""
