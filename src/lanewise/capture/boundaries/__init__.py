"""Where a step of a running program begins and ends."""
