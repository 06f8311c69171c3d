"""How right the diagnoses are on recorded programs: the recordings, and how they were kept."""
