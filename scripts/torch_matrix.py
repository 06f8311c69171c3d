"""The collector of `lanewise watch` on several versions of torch: it is built, checked and tested on each, in turn.

    python scripts/torch_matrix.py 2.14.1 2.12.1 ...      [--out benchmarks/results/torch-matrix-cpu.json]
    python scripts/torch_matrix.py here                   the torch of this Python, without an environment of its own

Each version gets a virtual environment, which is removed afterwards: on Linux a torch from PyPI takes about 6 GB.
Versions for which the disk has not 30 GB left are passed over. What a version came to replaces what the file says of it;
exit code 1 if any version failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
TESTS = (
    "tests/capture/context/test_native.py",
    "tests/capture/context/test_agreement.py",
    "tests/capture/context/test_endings.py",
)
FREE_GB = 30


def main() -> None:
    """Try each, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--out", type=Path, default=TOP / "benchmarks/results/torch-matrix-cpu.json")
    given = parser.parse_args()
    bad = False
    for version in given.versions:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="torch-matrix-") as name:
            found = tried(version, Path(name))
        found |= {
            "seconds": round(time.monotonic() - began),
            "load": round(os.getloadavg()[0], 1),
            "date": date(),
            "commit": commit(),
        }
        version = found.pop("torch", version)
        print(f"torch {version}: {json.dumps(found)}", flush=True)
        bad |= found["outcome"] != "passed"
        # Others may have written meanwhile: only this row is ours.
        results: dict[str, Any] = json.loads(given.out.read_text())["versions"] if given.out.exists() else {}
        results[version] = found
        newest_first = dict(
            sorted(results.items(), key=lambda one: [int(n) for n in re.findall(r"\d+", one[0])], reverse=True)
        )
        about = {"python": platform.python_version(), "tests": TESTS, "versions": newest_first}
        given.out.write_text(json.dumps(about, indent=1) + "\n")
    sys.exit(bad)


def tried(version: str, folder: Path) -> dict[str, Any]:
    """Installed, built, tested."""
    python = sys.executable
    if version != "here":
        if (free := shutil.disk_usage(folder).free / 2**30) < FREE_GB:
            return {"outcome": "passed over", "why": f"{free:.0f} GB of disk are left"}
        python = str(folder / "venv/bin/python")
        for words in (
            [sys.executable, "-m", "venv", str(folder / "venv")],
            [python, "-m", "pip", "install", "-q", "--no-cache-dir", f"torch=={version}", "pytest", str(TOP)],
        ):
            done = called(words)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "WARNING" not in line and "notice" not in line]
                return {"outcome": "cannot be installed", "why": lines[-1][:200] if lines else ""}
    # The tests are those of the working tree, and so is what they test.
    ours = os.environ | {
        "PYTHONPATH": f"{TOP / 'src'}{os.pathsep}{TOP}",
        "LANEWISE_CACHE_DIR": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    asked = called([python, "-c", "import torch; print(torch.__version__)"], ours)
    doctor = called([python, "-m", "lanewise", "doctor"], ours)
    said = next((line.strip() for line in doctor.stdout.splitlines() if re.search(r"(^| )watch ", line)), "")
    tests = called([python, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", "not gpu", *TESTS], ours)
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", tests.stdout)}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", tests.stdout, re.MULTILINE)
    built = "built and checked" in said
    return {
        "torch": asked.stdout.strip() or version,
        "outcome": "passed" if built and tests.returncode == 0 and counts.get("passed") else "failed",
        "doctor": said,
        "tests": counts,
        **({"failed": failed} if failed else {}),
    }


def called(words: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Its output, whatever it was."""
    return subprocess.run(words, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def commit() -> str:
    """What was tested."""
    return called(["git", "describe", "--always", "--dirty"]).stdout.strip()


def date() -> str:
    """Of today."""
    return time.strftime("%Y-%m-%d")


if __name__ == "__main__":
    main()
