"""One session of torch's profiler, its faults, and programs that profile themselves."""
