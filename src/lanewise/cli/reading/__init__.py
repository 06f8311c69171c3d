"""Verbs that show what is in a recording, or in a kernel."""
