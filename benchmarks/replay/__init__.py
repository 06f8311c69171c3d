"""Pairs of programs, slow and with one fix, to test predictions of a fix against."""
