"""Whether the recording holds what ran, and as fast as it ran without one."""
