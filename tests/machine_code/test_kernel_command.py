"""`lanewise kernel`: what it prints, and what it says about what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.cli.reading.kernel import kernel
from lanewise.errors import InputError, LanewiseError, MissingDependencyError, UsageError
from lanewise.machine_code import cubins, tools, triton_kernel
from tests.machine_code.listings import LISTED

CUBIN = b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little") + bytes(40)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """NVIDIA's tools, which print what they have printed of the kernel that a file is named after."""
    called: list[tuple[Any, ...]] = []

    def run(name: str, *words: str | Path, folder: Path | None = None) -> str:
        called.append((name, *words))
        which = {"-c": 0, "-res-usage": 1, "-elf": 2}[str(words[0])]
        return str(LISTED[Path(words[-1]).stem]["listings"][which])

    monkeypatch.setattr(cubins, "run_tool", run)
    return called


def run(*words: str) -> str:
    done = CliRunner().invoke(kernel, words, catch_exceptions=False, env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.output


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.cubin").write_bytes(CUBIN)
        (folder / f"{name}.json").write_text(json.dumps(LISTED[name]["beside"] | {"more": [1]}))


def test_it_says_what_limits_a_kernel_and_what_to_do(tmp_path: Path, tool: list[Any]) -> None:
    write(tmp_path, "chase")
    text = run(str(tmp_path / "chase.cubin"))
    assert "Limited by latency" in text
    assert "Fix: load indices ahead" in text
    assert "compute capability 9.0; 16 registers" in text
    assert "planted.py:" in text
    assert "memory: it mostly" not in text  # what a good one would be limited by
    assert all(len(line) <= 100 for line in text.splitlines())


def test_a_folder_is_read_whole_and_names_choose(tmp_path: Path, tool: list[Any]) -> None:
    write(tmp_path, "chase", "copy", "product")
    text = run(str(tmp_path))
    assert text.count("Limited by") == 3
    assert run(str(tmp_path), "--name", "*rod*").count("Limited by") == 1
    with pytest.raises(UsageError, match="no kernel like 'gemm'; it has chase, copy, product"):
        run(str(tmp_path), "--name", "gemm")


def test_what_a_launch_asks_for_stands_beside_a_cubin(tmp_path: Path, tool: list[Any]) -> None:
    write(tmp_path, "product")
    (found,) = json.loads(run(str(tmp_path / "product.cubin"), "--json"))["kernels"]
    assert found["shared_bytes"] == 98304
    assert found["limits"][0]["name"] == "tensor cores"
    (tmp_path / "product.json").write_text("[1, 2")
    (found,) = json.loads(run(str(tmp_path / "product.cubin"), "--json"))["kernels"]
    assert found["shared_bytes"] == 0  # not the KiB that the system keeps


def test_names_of_a_file_drive_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text.replace("chase", "\x1b]0;owned\x07chase") for text in LISTED["chase"]["listings"]]
    monkeypatch.setattr(cubins, "listings_of", lambda cubin: texts)
    write(tmp_path, "chase")
    assert "\x1b" not in run(str(tmp_path / "chase.cubin"))


def test_what_is_no_machine_code_is_said(tmp_path: Path, tool: list[Any]) -> None:
    def error(path: Path) -> str:
        with pytest.raises(InputError) as stop:
            run(str(path))
        assert "\n" not in str(stop.value)
        return str(stop.value)

    assert "no such file" in error(tmp_path / "nothing")
    assert "no .cubin in this folder" in error(tmp_path)
    for content in (b"", b"hello", b"\x7fELF", b"{}"):
        (tmp_path / "other").write_bytes(content)
        assert "neither a cubin, PTX, CUDA C++, nor a program" in error(tmp_path / "other")


def test_missing_tools_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_of_triton", lambda: None)
    monkeypatch.setattr(tools, "nvidia_folders", lambda: [tmp_path])
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path, "chase")
    with pytest.raises(MissingDependencyError, match="pip install triton"):
        run(str(tmp_path / "chase.cubin"))


def test_a_tool_that_fails_is_quoted_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("nvdisasm", "cuobjdump"):
        (bin_ / name).write_text("#!/bin/sh\necho 'fatal: not a cubin' >&2\nexit 255\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setattr(tools, "_of_triton", lambda: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    write(tmp_path, "chase")
    with pytest.raises(InputError, match=r"cuobjdump cannot read it \(fatal: not a cubin\)"):
        run(str(tmp_path / "chase.cubin"))


def test_a_program_without_code_for_a_gpu_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_of_triton", lambda: tmp_path)
    says = "cuobjdump info    : File '/elsewhere/program' does not contain device code"
    _assembler(tmp_path, "cuobjdump", f'echo "{says}" >&2; exit 255')
    with pytest.raises(InputError, match=r"true: holds no machine code of a kernel$"):
        list(cubins.cubins_in(Path("/bin/true"), tmp_path, (9, 0)))


def test_ptx_is_compiled_for_what_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[str] = []
    monkeypatch.setattr(cubins, "listings_of", lambda cubin: LISTED["chase"]["listings"])
    monkeypatch.setattr(cubins, "run_tool", lambda name, *words, folder=None, of=None: targets.append(words[1]) or "")
    for number, (asked, target) in enumerate((("sm_80", "90"), ("sm_90a", "80"), ("sm_90", "80"), ("sm_80", "sm_80"))):
        path = tmp_path / f"{number}.ptx"
        path.write_text(f"// PTX\n.version 8.4\n.target {asked}\n.address_size 64\n")
        run(str(path), "--target", target)
    assert targets == ["-arch=sm_90", "-arch=sm_90a", "-arch=sm_90", "-arch=sm_80"]


def test_triton_s_loads_are_in_the_line_that_they_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = """	.loc	1 16 18
	// begin inline asm
	.loc	1 16 18
	mov.u32 %r11, 0x0;
	.loc	1 17 18
	ld.global.b32 { %r11 }, [ %rd5 + 0 ];

	// end inline asm
	.loc	1 19 5
"""
    given: list[str] = []
    monkeypatch.setattr(cubins, "listings_of", lambda cubin: LISTED["chase"]["listings"])
    monkeypatch.setattr(
        cubins, "run_tool", lambda *words, folder=None, of=None: given.append(words[-1].read_text()) or ""
    )
    (tmp_path / "a.ptx").write_text(".target sm_90a\n" + assembly)
    run(str(tmp_path / "a.ptx"))
    assert [line.split()[2] for line in given[0].splitlines() if ".loc" in line] == ["16", "16", "16", "19"]


def test_a_launch_is_judged_where_its_size_is_said(tmp_path: Path, tool: list[Any]) -> None:
    write(tmp_path, "polynomial")
    path = str(tmp_path / "polynomial.cubin")
    assert "Limited by math" in run(path, "--grid", "132,64")
    few = run(path, "--grid", "8,2", "--card", "H200")
    assert "Limited by too few blocks: 16 blocks leave 116 of 132 multiprocessors (H200 SXM)" in few
    assert "Limited by tail: 140 blocks on 132 multiprocessors (H100 SXM5" in run(path, "--grid", "140")
    assert "Limited by math" in run(path, "--grid", "216", "--card", "A100 PCIe 40GB")
    (found,) = json.loads(run(path, "--block", "32,4", "--json"))["kernels"]
    assert found["threads"] == 128


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--grid", "many"), r"--grid takes up to three numbers such as `256` or `32,8`, not 'many'"),
        (("--block", "0"), r"--block takes up to three numbers"),
        (("--block", "1,2,3,4"), r"--block takes up to three numbers"),
        (("--card", "H300"), r"--card: no 'H300' in the table; it has H100 PCIe, "),
    ],
)
def test_sizes_of_a_launch_are_numbers(tmp_path: Path, tool: list[Any], words: tuple[str, str], said: str) -> None:
    write(tmp_path, "copy")
    with pytest.raises(UsageError, match=said):
        run(str(tmp_path / "copy.cubin"), *words)


@pytest.mark.parametrize("target", ["", "hopper", "9", "sm_", "90 80"])
def test_a_target_is_a_compute_capability(target: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="compute capability such as"):
        run(str(tmp_path), "--target", target)


def test_arguments_are_types_or_values(tmp_path: Path) -> None:
    told = triton_kernel._told
    assert told(["x=*fp32", "n=i32:16", "TILE=1024", "HOW=ieee", "e=1e-5", "flag=True"]) == (
        {"x": "*fp32", "n": "i32:16"},
        {"TILE": 1024, "HOW": "ieee", "e": 1e-5, "flag": True},
    )
    for wrong in ("x", "=3", "x="):
        with pytest.raises(UsageError, match="say NAME=TYPE"):
            told([wrong])


def test_a_python_file_without_triton_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(triton_kernel.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LanewiseError, match="pip install triton"):
        run(f"{tmp_path / 'a.py'}::kernel")
    with pytest.raises(InputError, match="no such file"):
        run(f"{tmp_path / 'b.py'}::kernel")


def test_it_is_a_verb() -> None:
    assert "kernel" in CliRunner().invoke(cli, ["--help"]).output


_PTX = """.version 9.4
.target sm_90a
.address_size 64
"""


def _assembler(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_ptx_that_is_too_new_for_one_assembler_goes_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Triton's from 3.9 on."""
    brought = tmp_path / "bin"
    brought.mkdir()
    monkeypatch.setattr(tools, "_of_triton", lambda: brought)
    source = tmp_path / "new.ptx"
    source.write_text(_PTX)
    refuses = "echo 'Unsupported .version 9.4' >&2; exit 255"
    _assembler(brought, "ptxas", refuses)
    with pytest.raises(InputError, match=rf"^{source}: ptxas cannot read it \(Unsupported \.version 9\.4\)"):
        list(cubins.cubins_in(source, tmp_path, (9, 0)))
    _assembler(brought, "ptxas-blackwell", 'echo made for "$2" >"$4"')
    (made,) = cubins.cubins_in(source, tmp_path, (9, 0))
    assert made.read_text() == "made for -arch=sm_90a\n"
