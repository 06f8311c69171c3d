"""What recording costs: finding steps, the delay and size of a large recording, the time to a report, the distortion."""
