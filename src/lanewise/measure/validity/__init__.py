"""Whether the recording can be believed: steadiness, spread, what the profiler took."""
