"""The command line: one thin file per verb - parse, call, show."""
