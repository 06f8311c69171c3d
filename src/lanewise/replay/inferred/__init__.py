"""What a trace does not say of who waits for whom: the order on the device, between streams, and what a call waited for."""
