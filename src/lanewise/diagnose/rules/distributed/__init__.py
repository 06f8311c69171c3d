"""Diagnoses of the distributed family."""
