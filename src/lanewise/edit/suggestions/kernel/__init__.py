"""Suggestions that answer diagnoses of the kernel family."""
