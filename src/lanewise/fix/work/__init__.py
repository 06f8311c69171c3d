"""What one call of a program computes and runs, counted: what predictions of candidates are about."""
