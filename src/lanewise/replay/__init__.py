"""The step as a graph of what waits for what: replayed as recorded, without the profiler, and with one thing changed."""
