"""Suggestions that answer diagnoses of the sync family."""
