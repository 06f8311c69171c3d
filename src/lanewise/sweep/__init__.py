"""A program at several batch sizes: each recorded, and predicted from the first recording alone."""
