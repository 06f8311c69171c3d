"""What `lanewise fix` found, as text and as a page."""
