"""The page, what it carries, and the server for traces too large to send."""
