"""The calling-context tree: every nanosecond of device time at its place in the program."""
