"""Verbs that record a program: `run` and `watch`, before its first line and after its last."""
