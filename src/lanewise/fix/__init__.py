"""Tries what makes a program faster, keeps what is proven on this machine, and can undo all of it."""
