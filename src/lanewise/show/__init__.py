"""Outputs: one file per format. They draw a Report and know nothing of traces."""
