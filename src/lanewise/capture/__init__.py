"""A running program -> a trace file. Imports torch only once recording begins.

Nothing here needs more than the standard library and torch, so that a program can be recorded on a machine where the
rest of lanewise cannot be installed.
"""
