"""The command line: one thin file per verb - parse, call, show - in rooms by what is done with a recording.

Here are the way in (`main.py`), what all verbs share, and the verbs that need no recording.
"""
