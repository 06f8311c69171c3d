"""Step times on one clock, with and without the profiler."""
