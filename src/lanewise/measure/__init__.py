"""Numbers: one file per question, each a pure function of a Trace."""
