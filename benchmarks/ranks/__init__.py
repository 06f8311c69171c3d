"""Real jobs of several ranks with a planted cause: who is said to be late, why, and by how much."""
