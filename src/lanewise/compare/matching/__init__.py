"""Which work of one run is which work of the other."""
