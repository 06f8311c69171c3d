"""A program at several batch sizes."""
