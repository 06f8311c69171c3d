"""Runs before the program in a process that `script.become` made, takes itself out of it again, and begins.

Python imports `sitecustomize` before anything of a program's. This one is found first, because the folder leads
PYTHONPATH; the environment and the path are put back before the program, its children and its own `sitecustomize`, if it
has one, can see any of it.
"""

import os
import sys


def _first() -> None:
    order = os.environ.pop("LANEWISE_ORDER", "")
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != folder]
    sys.path_importer_cache.pop(folder, None)
    search = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    search = search[search.index(folder) + 1 :] if folder in search else search
    os.environ["PYTHONPATH"] = os.pathsep.join(search)
    if not search:
        del os.environ["PYTHONPATH"]
    _theirs()
    if order:
        _begin(order, frozenset(sys.modules))
    if __name__ not in sys.modules:
        # As where nobody has such a module.
        raise ImportError(name=__name__)


def _theirs() -> None:
    del sys.modules[__name__]
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise


def _begin(order: str, before: frozenset[str]) -> None:
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    there = home in sys.path
    if not there:
        sys.path.append(home)
    try:
        from lanewise.capture.inside import begin

        begin(order, before)
    except Exception as error:
        if os.environ.get("LANEWISE_DEBUG"):
            raise
        try:
            os.write(2, f"lanewise: nothing is recorded: {type(error).__name__}: {error}\n".encode())
        except OSError:
            return
    finally:
        if not there:
            sys.path.remove(home)


_first()
