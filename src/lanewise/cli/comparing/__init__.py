"""Verbs that hold recordings beside each other, or against what was kept."""
