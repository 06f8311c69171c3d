"""One folder per family of diagnoses, one file per diagnosis."""
