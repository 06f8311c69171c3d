"""Lines of kernels in a library of a program's own: a real one, its kernel compiled here, unpacked by NVIDIA's tool."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from lanewise.capture.sampling.library_code import code_in_libraries, loaded_libraries
from lanewise.capture.sampling.pc_sampler import Taken
from lanewise.capture.sampling.samples_file import samples_of, write_samples
from lanewise.errors import MissingDependencyError
from lanewise.machine_code.cubins import kernels_in
from lanewise.machine_code.cuda_source import compiled_cuda
from lanewise.machine_code.sampled.samples import read_samples
from lanewise.machine_code.sampled.stalls import stalls_of
from lanewise.machine_code.tools import find_tool

SOURCE = """
extern "C" __global__ void halve(float *x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] *= 0.5f;
}
"""


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("source")
    (folder / "own.cu").write_text(SOURCE)
    try:
        find_tool("cuobjdump")
        return compiled_cuda(folder / "own.cu", (9, 0), folder).read_bytes()
    except MissingDependencyError as error:
        pytest.skip(str(error))


def library(folder: Path, cubin: bytes, kernel: str = "halve") -> Path:
    """As nvcc makes one: the code in a container of its own format, and the names by which it is launched."""
    cubin += bytes(-len(cubin) % 8)
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(cubin), 0, 0, 7, 1, 90, 0, 0, 0x11, 0, 0)
    container = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(cubin)) + entry + cubin
    (folder / "own.fatbin").write_bytes(container)
    words = ['.section .nv_fatbin,"a"', ".balign 8", '.incbin "own.fatbin"', ".section .rodata", f'.asciz "{kernel}"']
    (folder / "own.s").write_text("\n".join([*words, '.section .note.GNU-stack,"",@progbits', ""]))
    subprocess.run(["g++", "-shared", "-o", "libown.so", "own.s"], cwd=folder, check=True)
    return folder / "libown.so"


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@needs_compiler
def test_samples_of_a_kernel_in_a_loaded_library_lie_at_its_lines(cubin: bytes, tmp_path: Path) -> None:
    path = library(tmp_path, cubin)
    ctypes.CDLL(str(path))
    assert path in loaded_libraries()
    kept = tmp_path / "train.kernels"
    (kernel,) = kernels_in(_named(tmp_path / "halve.cubin", cubin))
    loads = [one.address for one in kernel.code.instructions if one.opcode.startswith("FMUL")]
    taken = Taken()
    taken.counts[zlib.crc32(cubin), "halve", loads[0], "smsp__pcsamp_warps_issue_stalled_long_scoreboard"] = 7

    def elsewhere(wanted: dict[int, str]) -> dict[int, Path]:
        return code_in_libraries(wanted, loaded_libraries(), zlib.crc32, kept)

    write_samples(tmp_path / "train.samples.json", samples_of(taken, 1.0, zlib.crc32, [], elsewhere))
    (found,) = stalls_of(read_samples(tmp_path / "train.samples.json"))
    assert found.missing == ""
    assert [(line.at.line, line.number) for line in found.lines] == [(3, 7)]
    assert [one.suffix for one in kept.iterdir()] == [".cubin"]


@needs_compiler
def test_a_library_with_other_code_gives_nothing_and_makes_no_folder(cubin: bytes, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for wanted in ({zlib.crc32(cubin) + 1: "halve"}, {zlib.crc32(cubin): "another"}):
        assert code_in_libraries(wanted, [library(tmp_path, cubin)], zlib.crc32, kept) == {}
    assert not kept.exists()


def test_files_that_are_no_libraries_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "empty.so").touch()
    (tmp_path / "torn.so").write_bytes(b"\x7fELF .nv_fatbin\0 halve\0")
    libraries = [tmp_path / name for name in ("gone.so", "empty.so", "torn.so")]
    assert code_in_libraries({1: "halve"}, libraries, zlib.crc32, tmp_path / "kept") == {}


def test_only_libraries_beside_torch_and_nvidia_are_looked_at(tmp_path: Path) -> None:
    def line(path: str) -> str:
        return f"7f00-7f10 r-xp 00000000 08:01 12 {path}\n"

    maps = tmp_path / "maps"
    maps.write_text(
        line("/opt/my lib/_C.cpython-312.so") * 2
        + line("/usr/lib/libown.so.1.2")
        + line("/x/torch/lib/libtorch_cuda.so")
        + line("/x/nvidia/cu13/lib/libcublas.so.13")
        + line("[heap]")
        + "7f00-7f10 rw-p 00000000 00:00 0\n"
    )
    assert loaded_libraries(maps) == [Path("/opt/my lib/_C.cpython-312.so"), Path("/usr/lib/libown.so.1.2")]
    assert loaded_libraries(tmp_path / "none") == []


def _named(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
