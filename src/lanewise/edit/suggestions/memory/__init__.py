"""Suggestions that answer diagnoses of the memory family."""
