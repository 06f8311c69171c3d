"""What a candidate must pass: correct first, then faster; nothing is believed unmeasured."""
