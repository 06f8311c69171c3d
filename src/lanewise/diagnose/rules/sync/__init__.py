"""Diagnoses of the sync family."""
