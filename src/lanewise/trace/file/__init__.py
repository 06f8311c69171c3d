"""From a file of any kind to the text of its rows, however damaged."""
