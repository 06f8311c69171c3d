"""Verbs about changes of a program: what they would give, and making them."""
