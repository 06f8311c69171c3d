"""The house as CONTRIBUTING describes it: rooms of a size, names that say which file is meant, references that resolve."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

from tests.support.corpus import REPOSITORY

ROOT = REPOSITORY / "src" / "lanewise"
MOST = 15
NATIVE = ROOT / "capture" / "context" / "native"

# Why a stem may stand in two rooms. A verb's file is named after the verb, and a section after the measure it shows.
SAME_IN_EVERY_ROOM = {"model": "the structs of the room"}
NAMED_AFTER_ANOTHER_ROOM = {
    "cli": "a verb's file has the verb's name",
    "diagnose/sections": "a section has the name of the measure that it shows",
}


def room_of(path: Path) -> str:
    return path.parent.relative_to(ROOT).as_posix()


def modules() -> list[Path]:
    return [path for path in ROOT.rglob("*.py") if path.stem not in ("__init__", "__main__")]


def test_a_room_has_at_most_fifteen_files_or_says_why() -> None:
    rooms: dict[Path, int] = defaultdict(int)
    for path in modules():
        rooms[path.parent] += 1
    for room, count in sorted(rooms.items()):
        reason = "More than fifteen files:" in (room / "__init__.py").read_text()
        if count > MOST:
            assert reason, f"{room.relative_to(ROOT)} holds {count} files; make rooms in it, or say why in its __init__"
        else:
            assert not reason, (
                f"{room.relative_to(ROOT)} holds {count} files: the reason in its __init__ is out of date"
            )


def test_every_room_says_what_it_is_for() -> None:
    for room in {path.parent for path in modules()}:
        assert (room / "__init__.py").read_text().startswith('"""'), room.relative_to(ROOT)


def test_no_stem_stands_in_two_rooms() -> None:
    rooms: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        named_after_another = any(f"{room_of(path)}/".startswith(f"{room}/") for room in NAMED_AFTER_ANOTHER_ROOM)
        if not named_after_another and path.stem not in SAME_IN_EVERY_ROOM:
            rooms[path.stem].append(room_of(path))
    assert {stem: found for stem, found in rooms.items() if len(found) > 1} == {}


def test_contributing_lists_the_rooms_that_are_there() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)/` \|", text, re.M))
    there = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert listed == there


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return [REPOSITORY / name for name in names.splitlines()]


def sources() -> list[Path]:
    ends = {".py", ".md", ".h", ".c", ".cpp", ".ts", ".tsx", ".sh", ".toml"}
    return [path for path in tracked() if path.suffix in ends and path.exists() and path.name != "CHANGELOG.md"]


def test_documents_that_are_named_are_in_the_repository() -> None:
    there = {path.name for path in tracked()}
    ours = re.compile(r"(?<![\w/.{*%-])(?:docs/|\.\./)?(?:[\w-]+/)*([a-z][\w-]*\.md)\b")
    missing: set[str] = set()
    for path in sources():
        if path.suffix == ".py" and "tests" in path.parts:
            continue  # tests write documents of their own
        for found in ours.finditer(path.read_text(encoding="utf-8", errors="replace")):
            if found[1] not in there:
                missing.add(f"{path.relative_to(REPOSITORY)}: {found[0]}")
    assert not {line for line in missing if not line.endswith(WRITTEN_BY_US)}


# Names of files that a command writes, in examples of it.
WRITTEN_BY_US = ("report.md", "summary.md", "plan.md", "diff.md", "out.md", "check.md", "table.md", "story.md")


def test_sections_and_traps_that_are_named_exist() -> None:
    text = (REPOSITORY / "docs" / "internals" / "trace-format.md").read_text()
    sections = set(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text, re.M))
    traps = set(re.findall(r"^\| ([A-Z]\d+) \|", text, re.M))
    diagnoses = set(re.findall(r"^## (\d+)\. ", (REPOSITORY / "docs" / "internals" / "diagnoses.md").read_text(), re.M))
    assert len(sections) > 15
    assert len(traps) > 25
    for path in sources():
        body = path.read_text(encoding="utf-8", errors="replace")
        for trap in re.findall(r"\btraps? ([A-Z]\d+)\b", body):
            assert trap in traps, (path, trap)
        for named in re.findall(r"trace-format (?:sections? )?(\d+(?:\.\d+)?)", body):
            assert named in sections, (path, named)
        for named in re.findall(r"diagnoses\.md section (\d+)", body):
            assert named in diagnoses, (path, named)
