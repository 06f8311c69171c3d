"""Outputs: one file per format. They draw what was measured, explained or compared, and do none of that themselves: import
contracts in pyproject.toml keep the engine and the comparison out of here."""
