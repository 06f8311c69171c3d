"""Diagnoses of the validity family: whether the numbers of a recording mean what they seem to."""
