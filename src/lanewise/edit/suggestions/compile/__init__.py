"""Suggestions that answer diagnoses of the compile family."""
