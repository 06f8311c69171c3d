"""A plan: applied, taken back, saved, found again."""
