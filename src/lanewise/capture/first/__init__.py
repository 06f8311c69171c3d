"""A folder for the path of a recorded program: Python runs `sitecustomize` in it before the first line of the program."""
