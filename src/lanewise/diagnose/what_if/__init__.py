"""What the step would be: changes in terms of what belongs together, and what they give."""
