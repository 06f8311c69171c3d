"""Python loops over tensors: what repeats, what the rounds work on, whether they need each other, what one call takes."""
