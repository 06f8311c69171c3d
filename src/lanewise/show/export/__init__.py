"""The trace for other tools: Perfetto, SQL."""
