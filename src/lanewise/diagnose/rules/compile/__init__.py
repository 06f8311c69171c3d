"""Diagnoses of the compile family."""
