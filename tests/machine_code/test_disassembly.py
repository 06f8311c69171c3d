"""Reading what the disassembler prints."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from lanewise.machine_code.disassembly import Place, parse
from lanewise.machine_code.features import features_of
from lanewise.machine_code.loop_nest import loops_of
from tests.machine_code.listings import LISTED, code_of, lines


def test_opcodes_guards_operands_and_widths() -> None:
    code = code_of("LDG.E.128 R4, desc[UR4][R2.64+0x10]", "@!P0 STG.E.U16 desc[UR4][R8.64], R4", "EXIT")
    load, store, _ = code.instructions
    assert (load.name, load.width, load.guard) == ("LDG", 128, "")
    assert load.writes() == {4, 5, 6, 7}
    assert load.reads() == {2, 3}
    assert (store.guard, store.width, store.writes()) == ("!P0", 16, frozenset())
    assert store.reads() >= {8, 9, 4}
    assert code.capability == (9, 0)


def test_lines_of_source_and_where_they_were_inlined() -> None:
    code = code_of(
        '//## File "a.py", line 3',
        "MOV R1, R2",
        '//## File "lib.py", line 7 inlined at "a.py", line 4',
        '//## File "a.py", line 4',
        "MOV R2, R3",
        "MOV R3, R4",
    )
    assert [one.place for one in code.instructions] == [Place("a.py", 3), *[Place("lib.py", 7, "a.py", 4)] * 2]


def test_loops_nest_and_the_trap_behind_the_end_is_none() -> None:
    code = code_of(
        ".L_x_0:",
        "MOV R1, R2",
        ".L_x_1:",
        "LDG.E R3, desc[UR4][R2.64]",
        "@P0 BRA `(.L_x_1)",
        "@P1 BRA `(.L_x_0)",
        "EXIT",
        ".L_x_2:",
        "BRA `(.L_x_2)",
    )
    assert [(loop.first, loop.last, loop.depth) for loop in loops_of(code)] == [(0, 3, 1), (1, 2, 2)]
    assert features_of(code).loop == loops_of(code)[1]


def test_two_branches_back_to_one_place_are_one_loop() -> None:
    code = code_of(".L_a:", "MOV R1, R2", "@P0 BRA `(.L_a)", "MOV R2, R3", "@P1 BRA `(.L_a)", "EXIT")
    assert [(loop.first, loop.last) for loop in loops_of(code)] == [(0, 3)]


def test_branches_may_name_an_address() -> None:
    assert len(loops_of(code_of("MOV R1, R2", "MOV R2, R1", "@P0 BRA 0x10", "@P1 BRA 0x0", "EXIT"))) == 2


def test_several_functions_have_labels_of_their_own() -> None:
    one = lines(".L_x_0:", "MOV R1, R2", "@P0 BRA `(.L_x_0)", name="first")
    other = lines("MOV R1, R2", ".L_x_0:", "MOV R1, R2", "@P0 BRA `(.L_x_0)", name="second")
    first, second = parse(one + "\n" + other)
    assert (first.name, first.targets, second.name, second.targets) == ("first", {1: 0}, "second", {2: 1})


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    for code in parse(lines("MOV R1, R2") + "\n" + text):
        features_of(code)


def test_an_instruction_may_have_lost_its_operands() -> None:
    for listing in (text for one in LISTED.values() for text in one["listings"]):
        for name in sorted(
            set(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?([A-Z][\w.]*)", listing, re.MULTILINE))
        ):
            for operands in (
                "",
                " R1",
                " R1, R2",
                " P0",
                " R1, P0",
                " UR4",
                ",",
                " R1,",
                " [R2]",
                " R1, [R2",
                " c[0x0]",
            ):
                for code in parse(lines(f"{name}{operands}")):
                    features_of(code)


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 4000)), max_size=4))
@example([(2344, 339)])
def test_a_listing_with_pieces_missing_is_read(cuts: list[tuple[int, int]]) -> None:
    text = LISTED["chase"]["listings"][0]
    for at, length in cuts:
        text = text[:at] + text[at + length :]
    for code in parse(text):
        features_of(code)
