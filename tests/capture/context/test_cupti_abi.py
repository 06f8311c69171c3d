"""What is declared of CUPTI agrees with NVIDIA's headers, where a CUDA toolkit or the wheels of one are installed.

Elsewhere the folders that hold cupti.h, cuda.h and crt/host_defines.h may be named in LANEWISE_CUPTI_INCLUDE, with `:`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lanewise.capture.context import native_build as build

HERE = Path(__file__).parent


def folders() -> list[Path]:
    """Folders of headers, in order."""
    found = [Path(name) for name in os.environ.get("LANEWISE_CUPTI_INCLUDE", "").split(":") if name]
    for home in filter(None, (os.environ.get("CUDA_HOME"), "/usr/local/cuda")):
        found += [Path(home) / "extras" / "CUPTI" / "include", Path(home) / "include"]
    for name in ("nvidia.cu13", "nvidia.cu12"):
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        found += [Path(part) / "include" for part in (spec.submodule_search_locations or ())] if spec else []
    return [path for path in found if path.is_dir()]


@pytest.fixture(scope="module")
def headers() -> list[Path]:
    """Folders in which everything that cupti.h includes is found."""
    found = folders()
    missing = [
        name
        for name in ("cupti.h", "cuda.h", "crt/host_defines.h")
        if not any((path / name).exists() for path in found)
    ]
    if missing:
        pytest.skip(f"no {missing[0]} here")
    return found


def text_of(headers: list[Path], name: str) -> str:
    return next(path / name for path in headers if (path / name).exists()).read_text(errors="replace")


def test_the_layouts_agree(headers: list[Path], tmp_path: Path) -> None:
    compiler = shutil.which("g++") or pytest.skip("no C++ compiler")
    newest = max(map(int, re.findall(r"^} CUpti_ActivityKernel(\d+);", text_of(headers, "cupti_activity.h"), re.M)))
    include = [word for path in headers for word in ("-isystem", str(path))]
    words = [compiler, "-std=c++17", "-fsyntax-only", f"-I{build._SOURCES}", *include]
    words += [f"-DKERNEL=CUpti_ActivityKernel{newest}", str(HERE / "cupti_layout.cpp")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.parametrize(
    ("table", "header", "prefix"),
    [
        ("kDriverCalls", "cupti_driver_cbid.h", "CUPTI_DRIVER_TRACE_CBID_"),
        ("kRuntimeCalls", "cupti_runtime_cbid.h", "CUPTI_RUNTIME_TRACE_CBID_"),
    ],
)
def test_the_numbers_of_calls_agree(headers: list[Path], table: str, header: str, prefix: str) -> None:
    numbers = {
        int(number): name for name, number in re.findall(prefix + r"(\w+)\s*=\s*(\d+)", text_of(headers, header))
    }
    source = (build._SOURCES / "cupti_library.cpp").read_text()
    body = source[source.index(f"{table}[]") :].partition("};")[0]
    listed = re.findall(r"\{(\d+), Work::(\w+)\},\s*// (\w+)", body)
    assert len(listed) > 20
    for number, _, name in listed:
        # The runtime's names end in the version that brought them; an older header may lack the newest calls.
        known = numbers.get(int(number))
        assert known is None or re.sub(r"_v\d+$", "", known) == name or known == name, (number, name, known)
    assert sum(int(number) in numbers for number, _, _ in listed) > 0.8 * len(listed)
