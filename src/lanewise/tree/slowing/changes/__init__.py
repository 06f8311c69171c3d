"""Blocks of steps -> what has changed: places, the machine taken out, and how certain it is."""
