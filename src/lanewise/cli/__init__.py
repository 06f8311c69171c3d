"""The command line: one thin file per verb - parse, call, show.

More than fifteen files: one for each verb, named after it.
"""
