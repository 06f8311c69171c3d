"""Machine code out of what a user has: a cubin, a folder of them (a compiler's cache), PTX, a library or program."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lanewise.errors import InputError, MissingDependencyError
from lanewise.machine_code.cuda_source import compiled_cuda
from lanewise.machine_code.disassembly import Function, parse
from lanewise.machine_code.tools import run_tool

__all__ = ["Kernel", "Launch", "cubins_in", "kernels_in", "kernels_of", "listings_of"]

_ELF, _CUDA_MACHINE = b"\x7fELF", 190
_USAGE = re.compile(r"Function (?P<name>\S+?):\s*\n\s*(?P<values>REG:[^\n]*)")
_VALUE = re.compile(r"([A-Z]+)(?:\[\d+\])?:(\d+)")
_KERNEL_ASKS = re.compile(r"\.nv\.info\.(?P<name>\S+)(?P<body>.*?)(?=\n\.nv\.info|\n\.section|\Z)", re.DOTALL)
_THREADS = re.compile(
    r"EIATTR_(?:REQNTID|MAX_THREADS)\s*\n[^\n]*\n\s*Value:\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s+(0x[0-9a-f]+)",
    re.IGNORECASE,
)
_ASSEMBLY = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
_LOCATION = re.compile(r"\.loc[^\n]*")
_RESERVED = 1024
_MOST_FILES = 2000
_LARGEST = 512 << 20


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's code and what it asks of a multiprocessor.

    Attributes:
        file: where it was found. code: its instructions.
        registers: per thread. shared: bytes per block, as far as fixed when it was compiled. stack: bytes per thread; local
            memory that is not in registers. block: threads of a block in x, y and z, zeros where the code does not say.
    """

    file: Path
    code: Function
    registers: int
    shared: int
    stack: int
    block: tuple[int, int, int]

    @property
    def threads(self) -> int:
        """Threads of a block, 0 if unknown."""
        x, y, z = self.block
        return x * y * z


class Launch(msgspec.Struct, frozen=True):
    """What Triton writes beside a cubin: bytes of shared memory that a launch asks for, and warps of a block."""

    shared: int = 0
    num_warps: int = 0


def kernels_in(path: Path, *, capability: tuple[int, int] = (9, 0)) -> list[Kernel]:
    """The kernels of a file, or of all cubins in a folder, in order.

    Args:
        capability: what PTX is compiled for.

    Raises:
        MissingDependencyError: a tool is missing. InputError: the file cannot be read, or holds no machine code.
    """
    if path.is_dir():
        files = sorted(path.rglob("*.cubin"))
        if not files:
            raise InputError(f"{path}: no .cubin in this folder")
        if len(files) > _MOST_FILES:
            raise InputError(f"{path}: {len(files)} cubins; name a folder with at most {_MOST_FILES}")
        # Each takes a tenth of a second, in processes of their own.
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            return [kernel for found in pool.map(_of_cubin, files, files) for kernel in found]
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    if path.stat().st_size > _LARGEST:
        raise InputError(f"{path}: larger than {_LARGEST >> 20} MiB")
    with tempfile.TemporaryDirectory() as folder:
        found = [kernel for file in cubins_in(path, Path(folder), capability) for kernel in _of_cubin(file, path)]
    if not found:
        raise InputError(f"{path}: holds no machine code of a kernel")
    return found


def cubins_in(path: Path, folder: Path, capability: tuple[int, int]) -> Iterator[Path]:
    """The cubins of a file, those that have to be made in a folder. Raises as `kernels_in` does."""
    with path.open("rb") as file:
        head = file.read(20)
    is_elf = len(head) == 20 and head.startswith(_ELF)
    if is_elf and int.from_bytes(head[18:], "little") == _CUDA_MACHINE:
        yield path
    elif path.suffix == ".ptx":
        text = path.read_text(errors="replace")
        source, made = folder / f"{path.stem}.ptx", folder / f"{path.stem}.cubin"
        source.write_text(_ASSEMBLY.sub(_on_one_line, text))
        _assemble(source, made, _target(text, capability), path)
        yield made
    elif path.suffix == ".cu":
        yield compiled_cuda(path, capability, folder)
    elif is_elf or path.suffix == ".fatbin":
        run_tool("cuobjdump", "-xelf", "all", path.resolve(), folder=folder, of=path)
        yield from sorted(folder.glob("*.cubin"))
    else:
        raise InputError(f"{path}: neither a cubin, PTX, CUDA C++, nor a program with CUDA code")


def _assemble(source: Path, made: Path, target: str, of: Path) -> None:
    """PTX to machine code. Triton brings two assemblers, and from 3.9 on writes PTX that only the newer one reads, whatever
    the card."""
    words = ("-lineinfo", f"-arch={target}", "-o", made, source)
    try:
        run_tool("ptxas", *words, of=of)
    except InputError:
        with suppress(InputError, MissingDependencyError):
            run_tool("ptxas-blackwell", *words, of=of)
            return
        raise


def _on_one_line(match: re.Match[str]) -> str:
    """Inline assembly with the line of source that it stands in: LLVM counts on with each of its own lines, and so puts
    Triton's loads one to eight lines too late."""
    first = _LOCATION.search(match[0])
    return match[0] if first is None else _LOCATION.sub(lambda _: first[0], match[0])


def _target(text: str, capability: tuple[int, int]) -> str:
    """What PTX is compiled for: what was asked for, where it can be. PTX of `sm_90a` is for that alone, that of `sm_90`
    also for all later ones."""
    match = re.search(r"^\s*\.target\s+sm_(\d+)([af]?)", text, re.MULTILINE)
    asked = 10 * capability[0] + capability[1]
    if match is None:
        return f"sm_{asked}"
    return f"sm_{match[1]}{match[2]}" if match[2] else f"sm_{max(asked, int(match[1]))}"


def _of_cubin(file: Path, source: Path) -> list[Kernel]:
    return kernels_of(source, *listings_of(file), beside=_beside(source))


def listings_of(cubin: Path) -> tuple[str, str, str]:
    """What NVIDIA's tools print of a cubin: code, what kernels ask for, sections. Raises as `run_tool` does."""
    asks, sections = (run_tool("cuobjdump", what, cubin) for what in ("-res-usage", "-elf"))
    return run_tool("nvdisasm", "-c", "-gi", cubin), asks, sections


def kernels_of(
    source: Path, disassembly: str, usage: str, listing: str, *, beside: Launch | None = None
) -> list[Kernel]:
    """The kernels of one cubin, from what is printed of it.

    Args:
        disassembly: by `nvdisasm -c -gi`. usage, listing: by `cuobjdump -res-usage`, `cuobjdump -elf`.
        beside: what a launch asks for, where that is known.
    """
    functions = parse(disassembly)
    asks = {match["name"]: dict(_VALUE.findall(match["values"])) for match in _USAGE.finditer(usage)}
    blocks = _blocks(listing)
    launch = beside or Launch()

    def kernel(code: Function) -> Kernel:
        of = asks.get(code.name, {})
        registers, shared, stack = (int(of.get(name, 0)) for name in ("REG", "SHARED", "STACK"))
        if code.capability >= (9, 0):
            # What the system keeps for itself is counted with it.
            shared = max(0, shared - _RESERVED)
        block = blocks.get(code.name, (32 * launch.num_warps, 1, 1) if launch.num_warps else (0, 0, 0))
        return Kernel(source, code, registers, max(shared, launch.shared), stack, block)

    return [kernel(code) for code in functions]


def _beside(file: Path) -> Launch:
    if file.suffix not in (".cubin", ".ptx"):
        return Launch()
    try:
        return msgspec.json.decode(file.with_suffix(".json").read_bytes(), type=Launch)
    except (OSError, msgspec.DecodeError, UnicodeError):
        return Launch()


def _blocks(listing: str) -> dict[str, tuple[int, int, int]]:
    """Threads of a block that a kernel must be launched with, or may have at most, where the compiler was told."""
    found: dict[str, tuple[int, int, int]] = {}
    for section in _KERNEL_ASKS.finditer(listing):
        if match := _THREADS.search(section["body"]):
            x, y, z = (int(value, 16) for value in match.groups())
            found[section["name"]] = (x, y, z)
    return found
