"""Diagnoses of the memory family."""
