"""Suggestions for a program's source, as diffs: one file per suggestion."""
