"""Whether a candidate is faster, and whether that can be believed."""
