"""A comparison, one file per output."""
