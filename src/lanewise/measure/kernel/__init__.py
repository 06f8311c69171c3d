"""Device work by itself: its FLOPs and bytes, and what the card could do."""
