"""Suggestions that answer diagnoses of the launch family."""
