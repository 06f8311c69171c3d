"""Times that cannot be, put right before anything is computed from them: device clocks and durations."""
