"""What a measure says of a trace, as a sentence with its numbers and tables; one file per measure."""
