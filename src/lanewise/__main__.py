"""`lanewise`, and `python -m lanewise`."""

import os
import sys

from lanewise.search import installed_first

__all__ = ["main"]


def main() -> None:
    """Run a verb."""
    # With -m, Python looks into the current folder first: the user's, with any names in it.
    sys.path[:] = installed_first(*([os.getcwd()] if __name__ == "__main__" else []))
    from lanewise.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
