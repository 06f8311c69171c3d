"""From the rows of a trace to the rows of a tree."""
