"""A job of several processes that are recorded: who belongs to it, and when all have written."""
