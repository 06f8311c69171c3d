"""What limits planted kernels in CUDA C++, and that nothing is said against their mended twins and good ones."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from lanewise.errors import InputError, MissingDependencyError
from lanewise.machine_code import tools
from lanewise.machine_code.cubins import Kernel, cubins_in, kernels_in, kernels_of
from lanewise.machine_code.limiter import Verdict, limits_of
from lanewise.measure.kernel.datasheet import peak_called
from tests.machine_code.planted_cuda import DEFECTS, GOOD, LISTINGS, SOURCE, Plant

LISTED = {one.code.name: one for one in kernels_of(SOURCE, *json.loads(gzip.decompress(LISTINGS.read_bytes())))}
TWINS = [Plant(f"{one.name}_mended", "", one.mended_block or one.block, one.mended_grid or one.grid) for one in DEFECTS]


def verdict(plant: Plant, kernels: dict[str, Kernel] = LISTED) -> Verdict:
    kernel = replace(kernels[plant.name], block=plant.block)
    return limits_of(kernel, grid=prod(plant.grid), card=peak_called("H200"))


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.name)
def test_a_planted_defect_is_what_limits_the_kernel(plant: Plant) -> None:
    first = verdict(plant).limits[0]
    assert (first.name, first.defect) == (plant.limiter, True)
    assert first.why
    assert first.advice


@pytest.mark.parametrize("plant", [*TWINS, *GOOD], ids=lambda plant: plant.name)
def test_a_mended_kernel_has_no_defect(plant: Plant) -> None:
    limits = verdict(plant).limits
    assert [one.name for one in limits if one.defect] == []
    assert plant.limiter in ("", limits[0].name)


def test_there_are_enough_of_both() -> None:
    assert len(DEFECTS) >= 20
    assert len(TWINS) + len(GOOD) >= 10
    assert set(LISTED) == {plant.name for plant in (*DEFECTS, *TWINS, *GOOD)}


def compiled(folder: Path) -> dict[str, Kernel]:
    try:
        (cubin,) = cubins_in(SOURCE, folder, (9, 0))
        return {one.code.name: one for one in kernels_in(cubin)}
    except MissingDependencyError as missing:
        pytest.skip(f"nothing compiles CUDA C++ here: {missing}")


def test_what_a_compiler_makes_here_is_judged_alike(tmp_path: Path) -> None:
    kernels = compiled(tmp_path)
    wrong = {plant.name: verdict(plant, kernels).limits[0].name for plant in DEFECTS}
    assert {plant.name: plant.limiter for plant in DEFECTS} == wrong
    assert [plant.name for plant in (*TWINS, *GOOD) if verdict(plant, kernels).limits[0].defect] == []


def test_source_that_does_not_compile_is_quoted(tmp_path: Path) -> None:
    compiled(tmp_path)
    wrong = tmp_path / "wrong.cu"
    wrong.write_text("__global__ void f(int* x) { *x = y; }\n")
    with pytest.raises(InputError, match='error: identifier "y" is undefined') as stop:
        kernels_in(wrong)
    assert "\n" not in str(stop.value)


def test_without_a_compiler_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install nvidia-cuda-nvrtc"):
        kernels_in(SOURCE)
