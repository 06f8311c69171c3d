"""The page of a kernel: its source with heat beside its instructions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lanewise.machine_code.disassembly import Instruction, Place
from lanewise.machine_code.limiter import limits_of
from lanewise.machine_code.sampled import stalls
from lanewise.machine_code.sampled.samples import KernelSamples, Samples
from lanewise.show.kernel.kernel_page import kernel_page, of_stalls, of_verdict
from tests.machine_code.test_planted_cuda import LISTED, SOURCE


def rows(page: str, text: str) -> list[str]:
    return [row for row in re.findall(r"<tr.*?</tr>", page) if text in row]


def test_the_hottest_line_of_the_source_is_the_reddest() -> None:
    page = kernel_page("planted.cu", [of_verdict(limits_of(LISTED["row_sums"]), None)])
    assert "Limited by uncoalesced loads" in page
    hot, cold = (rows(page, text)[0] for text in ("for (int i = 0; i &lt; columns; i++)", "out[row] = total;"))
    strength = [float(re.findall(r"/ ([0-9.]+)\)", row)[0]) for row in (hot, cold)]
    assert strength[0] > 2 * strength[1]
    (anchor,) = re.findall(r'href="#([^"]+)"', hot)
    assert f'<tr id="{anchor}"' in page
    assert "LDG.E" in page


def test_samples_stand_beside_the_instructions_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = LISTED["row_sums"]
    monkeypatch.setattr(stalls, "kernels_in", lambda path: [kernel])
    adds = [one for one in kernel.code.instructions if one.name == "FADD"]
    one = KernelSamples(
        "row_sums", [(adds[0].address, "long_scoreboard", 90), (0, "not_selected", 10)], "row_sums.cubin"
    )
    page = kernel_page("x", [of_stalls(of) for of in stalls.stalls_of(Samples("", [one]))])
    (row,) = rows(page, "for data from global or local memory</td>")
    assert "90.0 %" in row
    assert "FADD" in row
    assert len(rows(page, "10.0 %")) == 2  # the instruction and its line; it waits for nothing


def test_a_stranger_chooses_neither_marks_nor_files(tmp_path: Path) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("PRIVATE KEY\n")
    code = LISTED["copy"].code
    wrong = Instruction(0, "", "MOV", ("<script>", "R1"), Place(str(secret), 1))
    kernel = replace(LISTED["copy"], code=replace(code, name="<b>copy", instructions=[wrong, *code.instructions[1:]]))
    page = kernel_page("<i>", [of_verdict(limits_of(kernel), None)])
    assert "PRIVATE KEY" not in page
    assert "id_rsa" in page
    assert not re.search(r"<script|<b>|<i>", page)


def test_without_its_source_a_page_has_numbers_of_lines(tmp_path: Path) -> None:
    page = kernel_page("x", [of_verdict(limits_of(replace(LISTED["copy"], file=tmp_path / "gone.cubin")), None)])
    assert SOURCE.name in page
    assert re.search(r'<a href="#k0-planted-cu-\d+">', page)
    assert "blockIdx" not in page
