"""How fast and how large the page is, in a real browser."""
