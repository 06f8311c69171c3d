"""Speed of a comparison, how much of real pairs it aligns, and how often it raises a false alarm."""
