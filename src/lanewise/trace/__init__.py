"""Reading a trace: bytes to columns, links, windows and health. Never needs torch."""
