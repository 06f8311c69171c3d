"""The results of a check, for people, GitHub and code scanning."""
