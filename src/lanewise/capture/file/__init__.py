"""The recorded trace on disk."""
