"""Device memory: the allocator over time, and torch's snapshot."""
