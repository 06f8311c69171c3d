"""The next steps of a watched program, recorded in full when somebody asks for them."""
