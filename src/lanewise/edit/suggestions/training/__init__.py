"""Suggestions that answer diagnoses of the training family."""
