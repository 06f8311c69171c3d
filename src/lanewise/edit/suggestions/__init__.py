"""One file per suggestion. An edit looks at shapes of code, never at names of programs.

More than fifteen files: one for each suggestion, and nothing else.
"""
