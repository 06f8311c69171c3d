"""Trees of many processes and days as one: read and added up in parts, by processes of this machine or a cluster.

Adding up is associative, and a part is as small as one tree: what is in memory at a time does not grow with the number
of files. Above `MOST_NODES` contexts the cheapest are merged into `<truncated>`, as in one tree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lanewise.errors import InputError, LanewiseError
from lanewise.tree.algebra import merge
from lanewise.tree.limits import limit_nodes
from lanewise.tree.model import Tree
from lanewise.tree.tree_file import dumps, is_tree, load, loads

if TYPE_CHECKING:
    from lanewise.measure.distributed.gathering.executor import Executor

__all__ = [
    "MOST_NODES",
    "TREE_ENDINGS",
    "Fleet",
    "as_runs",
    "collected",
    "encoded_part",
    "holds_trees",
    "merge_fleet",
    "trees_below",
]

TREE_ENDINGS = (".lw", ".lwtree")
MOST_NODES = 200_000
_PART = 25
"""Trees that are added up at once."""
_ALONE = 100
"""Up to so many, other processes take longer to start than this one to read them."""
_RUNS = 16
"""Files of a folder that are runs of their own; of more, so many sums are made, each of every sixteenth file."""
_DEEPEST = 4
"""Folders in each other: the days of the processes of the hosts of a job."""
_TASK = f"{__name__}:encoded_part"

Unreadable = tuple[str, str]
"""A file, and why it could not be read."""


class Fleet(msgspec.Struct, frozen=True):
    """A sum of trees.

    Attributes:
        tree: the sum. files: how many are in it. unreadable: those that are not.
    """

    tree: Tree
    files: int
    unreadable: list[Unreadable]


class _Part(msgspec.Struct, frozen=True):
    tree: bytes
    files: int
    unreadable: list[Unreadable]


def trees_below(folder: Path | str) -> list[Path]:
    """The tree files in a folder and in the folders below it, by name; hidden ones and links to folders are left out.

    Raises:
        InputError: a folder cannot be read.
    """
    return list(_trees(Path(folder), _DEEPEST))


def as_runs(files: Sequence[Path]) -> list[list[Path]]:
    """Files as runs of one program: each of its own, or, of very many, sums of some."""
    return [[path] for path in files] if len(files) <= _RUNS else [list(files[at::_RUNS]) for at in range(_RUNS)]


def collected(tree: Tree, source: str) -> Tree:
    """The tree that is given.

    Raises:
        InputError: nothing ran while it was collected.
    """
    if tree.total("host") or tree.total("device"):
        return tree
    raise InputError(
        f"{source}: no operator ran while it was watched: watch the process that does the work, and longer"
    )


def holds_trees(source: Path | str) -> bool:
    """Whether it is a tree file, or a folder with one in it or in its folders. InputError as of `trees_below`."""
    if not Path(source).is_dir():
        return is_tree(source)
    return any(True for _ in _trees(Path(source), _DEEPEST))


def _trees(folder: Path, deeper: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if deeper:
                yield from _trees(Path(entry.path), deeper - 1)
        elif entry.name.endswith(TREE_ENDINGS) and (is_tree(entry.path) or _empty(entry)):
            yield Path(entry.path)


def _empty(entry: os.DirEntry[str]) -> bool:
    """Whether a file has nothing in it: a copy that went wrong, which is to be named like any damaged tree."""
    return entry.is_file() and entry.stat().st_size == 0


def merge_fleet(
    paths: Sequence[Path | str],
    executor: Executor | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Fleet:
    """The sum of tree files.

    Args:
        paths: one or more. executor: what reads them; by default this process a few, and processes of this machine more.
        progress: is told how many are done, of how many.

    Raises:
        InputError: none of them can be read; for a single one, why. UsageError: trees that cannot be added up.
    """
    names = [str(path) for path in paths]
    parts = [names[at : at + _PART] for at in range(0, len(names), _PART)]
    total: Tree | None = None
    files, unreadable = 0, list[Unreadable]()
    for row, part in enumerate(_read(parts, executor)):
        unreadable += part.unreadable
        files += part.files
        if part.tree:
            tree = loads(part.tree)
            total = tree if total is None else limit_nodes(merge([total, tree]), MOST_NODES)
        if progress is not None:
            progress(min(len(names), (row + 1) * _PART), len(names))
    if total is None:
        raise InputError(unreadable[0][1] if len(unreadable) == 1 else f"none of {len(names)} files is a readable tree")
    return Fleet(total, files, unreadable)


def _read(parts: Sequence[Sequence[str]], executor: Executor | None) -> Iterator[_Part]:
    if executor is None and len(parts) * _PART <= _ALONE:
        yield from map(_sum, parts)
        return
    if executor is None:
        from lanewise.measure.distributed.gathering.executor import executor_for

        executor = executor_for("processes")
    asked = [msgspec.json.encode(part).decode() for part in parts]
    for part, answer in zip(parts, executor.each(_TASK, asked, cache=False), strict=True):
        if answer is None:
            yield _Part(b"", 0, [(name, f"{name}: what read it ended early") for name in part])
        else:
            yield msgspec.msgpack.decode(answer, type=_Part)


def encoded_part(names: str, _: bool) -> bytes:
    """The sum of some files, as bytes: the task of an executor."""
    return msgspec.msgpack.encode(_sum(msgspec.json.decode(names, type=list[str])))


def _sum(names: Sequence[str]) -> _Part:
    trees: list[Tree] = []
    unreadable: list[Unreadable] = []
    for name in names:
        try:
            trees.append(load(name))
        except LanewiseError as error:
            unreadable.append((name, str(error)))
    if not trees:
        return _Part(b"", 0, unreadable)
    whole = trees[0] if len(trees) == 1 else limit_nodes(merge(trees), MOST_NODES)
    return _Part(dumps(whole, quick=True), len(trees), unreadable)
