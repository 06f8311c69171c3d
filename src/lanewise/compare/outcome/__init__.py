"""What came of a comparison, part by part."""
