"""What the machine code of kernels says, in a terminal and as JSON."""
