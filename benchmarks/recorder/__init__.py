"""What recording costs: finding steps, delay and size of a large recording, time to a report."""
