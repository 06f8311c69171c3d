"""The Report in a terminal, as Markdown and as JSON, and the tables around it."""
