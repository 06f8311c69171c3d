"""Diagnoses of the kernel family."""
