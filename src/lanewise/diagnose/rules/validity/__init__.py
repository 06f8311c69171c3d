"""Diagnoses of the validity family. More than fifteen files: one for each rule."""
