"""Diagnoses of the launch family."""
