"""The calling-context tree in a terminal and in the formats of flame graph tools."""
