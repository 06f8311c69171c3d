"""KernelBench's problems, from a folder that the user has, under lanewise's gates."""
