"""Diagnoses of the regime family."""
