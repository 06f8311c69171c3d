"""Where in a trace a finding is."""
