"""The Report: pure data that every output draws. Versioned schema, no behaviour, no trace."""
