"""Makes a virtual environment: `python make_environment.py FOLDER`. An environment that exists stays.

It is lent the torch of the Python that makes it, if that has one: a second takes minutes and gigabytes. What is installed
into the environment itself comes first. `--without-torch` makes one for the tests that do without.
"""

from __future__ import annotations

import sys
import venv
from importlib.util import find_spec
from pathlib import Path


def main(folder: Path, *, lend: bool) -> None:
    """Make the environment with the Python that runs this."""
    if sys.version_info < (3, 11):  # noqa: UP036 - it is older Pythons that must be told
        version = ".".join(map(str, sys.version_info[:2]))
        raise SystemExit(f"lanewise needs Python 3.11 or newer and this is {version}: make PYTHON=python3.12 ...")
    if not (folder / "pyvenv.cfg").exists():
        if find_spec("ensurepip") is None:
            raise SystemExit(
                "this Python cannot make environments: apt-get install python3-venv, or another PYTHON=..."
            )
        venv.create(folder, with_pip=True, symlinks=True)
    torch = find_spec("torch")
    if lend and torch is not None and torch.origin is not None:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "torch_of_the_maker.pth").write_text(f"{Path(torch.origin).parents[1]}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), lend="--without-torch" not in sys.argv)
