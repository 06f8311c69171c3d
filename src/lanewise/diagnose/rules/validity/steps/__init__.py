"""Whether the recorded steps stand for the run: warm, alike and steady."""
