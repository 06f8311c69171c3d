"""What an assistant may ask about recordings, each answer bounded: served by `lanewise mcp`."""
