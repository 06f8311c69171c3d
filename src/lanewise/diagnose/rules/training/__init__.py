"""Diagnoses of the training family."""
