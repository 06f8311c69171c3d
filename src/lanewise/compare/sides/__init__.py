"""What is compared: a run, several of them, a baseline, a report, a tree."""
