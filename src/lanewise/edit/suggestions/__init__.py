"""One file per suggestion, in the room of the family of the diagnosis that it answers first.

An edit looks at shapes of code, never at names of programs.
"""
