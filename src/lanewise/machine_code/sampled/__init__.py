"""What warps were seen to wait for: samples of a run, read from a file and laid on the lines of the source."""
