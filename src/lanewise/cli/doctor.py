"""`lanewise doctor`."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from lanewise import nvml
from lanewise.cli.common import json_option

__all__ = ["doctor"]


class _Check(NamedTuple):
    name: str
    ok: bool
    text: str


@click.command()
@click.option("--build", is_flag=True, help="Build the native collector of lanewise watch again if that failed before.")
@json_option
def doctor(build: bool, as_json: bool) -> None:
    """Say what this machine can record, and why not. Makes three tiny recordings; takes a few seconds.

    The first time the native collector of lanewise watch is compiled, too (up to a minute). Exit code 1 if nothing at
    all can be recorded here.
    """
    checks = [_python(), *_torch(), _collector(build), _disk(), _clocks(), _sql()]
    able = any(check.ok for check in checks if check.name == "operators")
    if as_json:
        click.echo(
            json.dumps({"schema": 1, "can_record": able, "checks": [check._asdict() for check in checks]}, indent=1)
        )
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = click.style("✓", fg="green") if check.ok else click.style("✗", fg="red")
            click.echo(f"{mark} {check.name:{width}}  {check.text}")
        if not able:
            click.echo("\nNothing can be recorded here; traces from other machines can be read and explained.")
    sys.exit(0 if able else 1)


def _python() -> _Check:
    return _Check("python", True, ".".join(map(str, sys.version_info[:3])))


def _torch() -> list[_Check]:
    if importlib.util.find_spec("torch") is None:
        return [_Check("torch", False, "not installed: pip install torch")]
    from lanewise.capture.lazy_torch import torch_part
    from lanewise.capture.probe import PROBES, run_probe

    torch = torch_part()
    built = torch.version.cuda or getattr(torch.version, "hip", None) or "CPU only"
    checks = [_Check("torch", True, f"{torch.__version__} ({built})")]
    for name in PROBES:
        answer = run_probe(name)
        checks.append(_Check(_LABELS[name], bool(answer.get("ok")), _describe(name, answer)))
    return checks


def _collector(build: bool) -> _Check:
    """Whether `lanewise watch` can use its native collector: what is built is checked, what is not is built."""
    if importlib.util.find_spec("torch") is None:
        return _Check("watch", False, "needs torch")
    from lanewise.capture.context.native import Native
    from lanewise.capture.context.native_build import forget, make_recipe
    from lanewise.errors import LanewiseError

    try:
        if build:
            forget(make_recipe())
        native = Native(lambda text: click.echo(text, err=True))
        native.close()
    except LanewiseError as error:
        return _Check("watch", False, f"{error}; short profiler windows are folded instead")
    notes = [text for text in native.checks.values() if text]
    return _Check("watch", True, "; ".join([f"built and checked, {native.callback_ns:.0f} ns per operator", *notes]))


def _describe(name: str, answer: dict[str, Any]) -> str:
    if not answer.get("ok"):
        return str(answer.get("why", "failed"))
    costs: dict[str, float] = answer.get("costs_ms", {})
    spent = f"start {costs.get('start', 0):.0f} ms, stop {costs.get('stop', 0):.0f} ms"
    return {
        "cpu": f"recorded ({spent})",
        "stacks": "Python frames and modules recorded",
        "cuda": f"recorded ({spent})",
    }[name]


def _disk() -> _Check:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if not os.access(here, os.W_OK):
        return _Check(
            "disk", False, "the working directory is read-only: traces go to the temporary folder (or use -o)"
        )
    return _Check(
        "disk", free > 1e9, f"{free / 1e9:.0f} GB free; a trace may take a quarter of it, at most 0.2 GB by default"
    )


def _clocks() -> _Check:
    if driver := nvml.driver_version():
        return _Check("clocks", True, f"read through NVML, driver {driver}")
    if shutil.which("nvidia-smi"):
        return _Check("clocks", True, "read through nvidia-smi")
    return _Check("clocks", False, "no NVML and no nvidia-smi: clocks and throttling stay unknown")


def _sql() -> _Check:
    found = importlib.util.find_spec("duckdb") is not None
    return _Check("sql", found, "duckdb is installed" if found else "optional: pip install 'lanewise[sql]'")


_LABELS = {"cpu": "operators", "stacks": "stacks", "cuda": "device work"}
