"""What is said of planted kernels from their machine code, beside what a card measures of them."""
