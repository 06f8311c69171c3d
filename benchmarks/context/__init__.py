"""What the calling-context collector costs, beside torch's profiler."""
