"""What a step's time consists of, and what the run is bound by."""
