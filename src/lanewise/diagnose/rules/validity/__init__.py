"""Diagnoses of the validity family."""
