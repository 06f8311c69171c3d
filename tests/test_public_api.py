"""The public surface: pinned, so that a change of it is a decision."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

import lanewise
from lanewise import kernels
from lanewise.errors import MissingDependencyError

NEED_TORCH = {"Plan", "load_plan", "optimize"}


def test_all_is_sorted_and_every_name_resolves_or_says_what_it_needs() -> None:
    assert lanewise.__all__ == sorted(lanewise.__all__)
    for name in lanewise.__all__:
        if name in NEED_TORCH and find_spec("torch") is None:
            with pytest.raises(MissingDependencyError, match=rf"lanewise\.{name} needs torch.*pip install torch"):
                getattr(lanewise, name)
        else:
            assert getattr(lanewise, name) is not None


def test_importing_lanewise_imports_nothing_heavy() -> None:
    code = "import sys, lanewise; print([m for m in ('numpy', 'polars', 'torch', 'rich') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_explaining_needs_neither_torch_nor_polars() -> None:
    code = (
        "import sys, lanewise\nfrom lanewise.bundled import bundled_path\n"
        "lanewise.explain(lanewise.read(str(bundled_path('mnist')), cache=False))\n"
        "print([m for m in ('polars', 'torch', 'duckdb') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_frames_carry_names_and_derived_columns() -> None:
    from lanewise.bundled import bundled_path

    trace = lanewise.read(str(bundled_path("mnist")), cache=False)
    events = trace.events
    assert events.height == len(trace) == 1975
    assert {"id", "name", "kind", "start", "duration", "depth", "parent", "step"} <= set(events.columns)
    kernels = events.filter(events["kind"] == "kernel")
    assert kernels.height == 147
    assert set(trace.lanes["side"]) >= {"host", "device"}


def test_a_trace_cannot_be_changed() -> None:
    import numpy as np

    from lanewise.bundled import bundled_path

    trace = lanewise.read(str(bundled_path("matmul-small")), cache=False)
    with pytest.raises(ValueError, match="read-only"):
        trace.start[0] = np.int64(7)


def test_two_runs_compare_from_python() -> None:
    from tests.support.corpus import trace_path

    a, b = (str(trace_path(f"01_matmul_add_64_warm_{mode}")) for mode in ("eager", "compile"))
    comparison = lanewise.diff(a, b)
    assert isinstance(comparison, lanewise.Comparison)
    assert comparison.differences[0].verdict


def test_what_takes_a_trace_takes_its_path_too() -> None:
    from pathlib import Path

    from lanewise.bundled import bundled_path

    path = str(bundled_path("mnist"))
    verdict = lanewise.explain(lanewise.read(path)).verdict
    for given in (path, Path(path)):
        assert lanewise.explain(given).verdict == verdict
        assert len(lanewise.build_tree(given)) == len(lanewise.build_tree(lanewise.read(path)))
        assert len(lanewise.Facts(given).trace) == 1975
    with pytest.raises(lanewise.InputError, match=r"nowhere\.json"):
        lanewise.explain("nowhere.json")
    for other in (None, 3, {"traceEvents": []}):
        with pytest.raises(
            TypeError, match=f"a trace, or the path of one, is needed and this is a {type(other).__name__}"
        ):
            lanewise.explain(other)  # type: ignore[arg-type]


_ALONE = """
import json, sys
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context

def check(first):
    import lanewise
    for name in first:
        try:
            getattr(lanewise, name)
        except lanewise.LanewiseError:
            pass  # torch is not installed here
    for name in lanewise.__all__:
        value = getattr(lanewise, name, None) if name not in {need} else vars(lanewise).get(name)
        assert not isinstance(value, type(sys)), f"{{name}} is a module after {{first}}"
    try:
        assert type(lanewise.record()).__name__ == "Recorder"
    except lanewise.LanewiseError:
        pass
    assert callable(lanewise.watch) and callable(lanewise.diff) and callable(lanewise.read)

# What takes long to import is imported once; of lanewise nothing is.
for name in ("numpy", "polars", "rich", "torch"):
    if find_spec(name):
        import_module(name)
assert "lanewise" not in sys.modules
for first in json.loads(sys.argv[1]):
    process = get_context("fork").Process(target=check, args=(first,))
    process.start()
    process.join()
    assert process.exitcode == 0, first
"""


def test_public_names_hold_in_any_order() -> None:
    """A package that is imported becomes an attribute of its parent: none may take the place of a public name."""
    names = list(lanewise.__all__)
    orders = (["optimize"], ["watch"], ["handler", "record"], ["Recorder"], ["Plan", "load_plan"], names, names[::-1])
    code = _ALONE.format(need=sorted(NEED_TORCH))
    done = subprocess.run([sys.executable, "-c", code, json.dumps(orders)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_public_name_is_also_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(lanewise.__path__)}
    assert not modules & set(lanewise.__all__)
    assert not {module.name for module in pkgutil.iter_modules(kernels.__path__)} & set(lanewise.kernels.__all__)
