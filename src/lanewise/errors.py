"""The exceptions a user can cause, and the exit code of each.

    LanewiseError                 1  anything the tool can explain in one line
    ├── UsageError                2  the command or call is wrong
    ├── InputError                3  the input cannot be read
    │   ├── NotATraceError        3  it is something else, named in the message
    │   └── TooLargeError         3  it exceeds a stated bound (a compression bomb, for example)
    └── MissingDependencyError    2  an optional package is needed; the message says how to install it

The message is one line: what is wrong, then what to do. `cli.main` prints it and exits with `exit_code`.
"""

from __future__ import annotations

__all__ = ["InputError", "LanewiseError", "MissingDependencyError", "NotATraceError", "TooLargeError", "UsageError"]


class LanewiseError(Exception):
    """Base of every error that lanewise raises on purpose."""

    exit_code = 1


class UsageError(LanewiseError):
    """The command line or the call asks for something that does not exist."""

    exit_code = 2


class MissingDependencyError(UsageError):
    """An optional package is not installed."""


class InputError(LanewiseError):
    """The input cannot be read."""

    exit_code = 3


class NotATraceError(InputError):
    """The input is readable but is not a profiler trace."""


class TooLargeError(InputError):
    """The input exceeds a bound that protects this machine."""
