"""Diagnosis: rules over facts, ranked into a Report."""
