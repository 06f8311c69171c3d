"""Views: a tree in, a tree out.

    shown = top_down(tree, phases=["backward"])        # from the program down to the kernels
    shown = bottom_up(tree)                            # from the kernels up to who calls them
    table = flat(tree, by="operator")                  # see lanewise.tree.flat

Every view has the device total of the tree it came from, or of the part that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import numpy as np

from lanewise.errors import UsageError
from lanewise.trace.frames import is_library, parse_frame
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import ENGINE_PREFIX
from lanewise.tree.forest import nearest_marked, unify
from lanewise.tree.model import PHASES, NodeKind, Tree
from lanewise.tree.rebuild import combine, drop_empty, identities, rebuild, with_metrics

__all__ = [
    "bottom_up",
    "fold_libraries",
    "match",
    "merge_layers",
    "modules",
    "only_phases",
    "placed",
    "top_down",
    "user_frames",
]

Placement = Literal["forward", "ran"]


def top_down(
    tree: Tree,
    *,
    placement: Placement = "forward",
    fold: bool = True,
    phases: Collection[str] = (),
    text: str = "",
) -> Tree:
    """From the threads down to the kernels.

    Args:
        tree: a tree.
        placement: "forward" puts backward work under its forward operator, "ran" leaves it where it ran.
        fold: leave out the frames of libraries below the call that entered them.
        phases: names of phases to keep; all by default.
        text: keep what is named so (regardless of case), with everything above and below it.
    """
    tree = placed(tree, placement)
    if phases:
        tree = only_phases(tree, phases)
    if text:
        tree = match(tree, text)
    return fold_libraries(tree) if fold else tree


def placed(tree: Tree, placement: Placement) -> Tree:
    """Backward work under its forward operator ("forward"), or where it ran ("ran")."""
    if tree.info.placement == "forward":
        if placement == "ran":
            raise UsageError("backward work is under the forward lines in this tree; where it ran is not in it")
        return tree
    if placement == "ran":
        return rebuild(tree)
    moved = rebuild(tree, parent=np.where(tree.forward >= 0, tree.forward, tree.parent))
    # The engine's thread may have nothing left of its own.
    return drop_empty(moved).with_info(placement="forward")


def only_phases(tree: Tree, phases: Collection[str]) -> Tree:
    """Only what was spent in some phases. UsageError for an unknown phase."""
    for name in phases:
        if name not in PHASES:
            raise UsageError(f"there is no phase {name!r}; there are: {', '.join(PHASES)}")
    wanted = [PHASES.index(name) for name in phases]
    return drop_empty(with_metrics(tree, np.isin(tree.phase, wanted)))


def match(tree: Tree, text: str) -> Tree:
    """Only nodes whose name or detail contains a text (regardless of case), with what is above and below them."""
    needle = text.casefold()
    hit = np.array([needle in string.casefold() for string in tree.strings], dtype=bool)
    named = hit[tree.name] | hit[tree.detail]
    return drop_empty(with_metrics(tree, nearest_marked(tree.parent, named) >= 0))


# -- folding -----------------------------------------------------------------------------------------------------------

_MACHINERY = re.compile(
    r"^(_call_impl|_wrapped_call_impl|decorate_context|inner|wrapper|wrapped|wrapped_fn|_fn|__call__|__enter__|__exit__|"
    r"__new__|__init__|__getattr__|__getattribute__|_call_user_compiler|compile_wrapper|contextmanager_wrapper|fn)$"
)


def user_frames(tree: Tree) -> np.ndarray:
    """Which nodes are Python frames of the user's own files, shape (nodes,)."""
    return (tree.kind == NodeKind.FRAME) & ~_library_strings(tree)[tree.name]


def _library_strings(tree: Tree) -> np.ndarray:
    frames = np.zeros(len(tree.strings), dtype=bool)
    for row in sorted(set(tree.name[tree.kind == NodeKind.FRAME].tolist())):
        frames[row] = is_library(parse_frame(tree.strings[int(row)]).file)
    return frames


def fold_libraries(tree: Tree) -> Tree:
    """Without the inner frames of libraries.

    The frame through which the user's code enters a library stays (`Module.to`, `generate`), unless it only leads back
    to the user's code. Wrappers, built-in functions, everything inside an `nn.Module` that is not the user's, and
    operators that only repeat the name of the one around them are left out.
    """
    frame = tree.kind == NodeKind.FRAME
    own = user_frames(tree)
    library = frame & ~own
    transparent = np.zeros(len(tree.strings), dtype=bool)
    for row in sorted(set(tree.name[library].tolist())):
        parsed = parse_frame(tree.strings[int(row)])
        transparent[row] = not parsed.file or parsed.file.startswith("<") or bool(_MACHINERY.match(parsed.function))
    solid = (frame & ~(library & transparent[tree.name])) | (tree.kind == NodeKind.MODULE)
    above = nearest_marked(tree.parent, solid)
    caller = np.where(tree.parent >= 0, above[tree.parent], -1)
    entered = library & solid & (caller >= 0) & own[np.maximum(caller, 0)]
    over_own = np.where(tree.parent >= 0, nearest_marked(tree.parent, entered)[tree.parent], -1)[own]
    leads_back = mask_of(len(tree), over_own[over_own >= 0])
    leave_out = (library & ~(entered & ~leads_back)) | _repeats(tree)
    return rebuild(tree, leave_out=leave_out)


def _repeats(tree: Tree) -> np.ndarray:
    """Operators that have the name of the operator around them, the engine's wrapper included."""
    plain = np.arange(len(tree.strings), dtype=np.int64)
    row_of = {text: row for row, text in enumerate(tree.strings)}
    for row in sorted(set(tree.name[tree.kind == NodeKind.OPERATOR].tolist())):
        text = tree.strings[int(row)]
        if text.startswith(ENGINE_PREFIX):
            plain[int(row)] = int(row_of.get(text.removeprefix(ENGINE_PREFIX), int(row)))
    operator = tree.kind == NodeKind.OPERATOR
    above = np.maximum(tree.parent, 0)
    same = plain[tree.name] == plain[tree.name[above]]
    return operator & (tree.parent >= 0) & operator[above] & same & (tree.phase == tree.phase[above])


# -- other shapes ------------------------------------------------------------------------------------------------------


def bottom_up(tree: Tree, metric: str = "device") -> Tree:
    """From what costs (kernels, for the device; frames and operators, for the host) up to who calls it.

    The roots are the nodes with a value of the metric, equal ones merged; the children of a node are its callers. The
    costs lie on the outermost caller, so that inclusive values are right at every level.
    """
    values = tree.value(metric)
    start = np.flatnonzero(values != 0)
    nodes: list[np.ndarray] = []
    parents: list[np.ndarray] = []
    owner = np.full(len(tree), -1, dtype=np.int64)
    at = start
    above = np.full(len(start), -1, dtype=np.int64)
    origin = start
    made = 0
    last_node: list[np.ndarray] = []
    last_origin: list[np.ndarray] = []
    while len(at):
        rows = made + np.arange(len(at))
        made += len(at)
        nodes.append(at)
        parents.append(above)
        up = tree.parent[at]
        top = up < 0
        last_node.append(rows[top])
        last_origin.append(origin[top])
        at, above, origin = up[~top], rows[~top], origin[~top]
    if not nodes:
        return with_metrics(tree, np.zeros(len(tree), dtype=bool))
    node, parent = np.concatenate(nodes), np.concatenate(parents)
    owner[np.concatenate(last_origin)] = np.concatenate(last_node)
    groups = unify(parent, identities(tree)[node])
    size = len(groups.parent)
    example = np.empty(size, dtype=np.int64)
    example[groups.of] = node
    group = np.where(owner >= 0, groups.of[np.maximum(owner, 0)], -1)
    return Tree(
        parent=groups.parent, kind=tree.kind[example], phase=tree.phase[example], name=tree.name[example],
        detail=tree.detail[example], forward=groups.forward, strings=tree.strings,
        metrics=combine(tree.metrics, group, size), info=tree.info,
    )  # fmt: skip


def modules(tree: Tree) -> Tree:
    """Only threads and modules: the network with what each part cost."""
    keep = np.isin(tree.kind, (NodeKind.THREAD, NodeKind.MODULE, NodeKind.MARK))
    return rebuild(tree, leave_out=~keep)


_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")


def merge_layers(tree: Tree) -> Tree:
    """Equal layers as one: indices in module paths become `*`, so `layers.0` and `layers.1` are one context."""
    strings = list(tree.strings)
    row_of = {text: row for row, text in enumerate(strings)}
    renamed = np.arange(len(strings), dtype=np.int64)
    for row in sorted(set(tree.name[tree.kind == NodeKind.MODULE].tolist())):
        text = _INDEX.sub("*", strings[int(row)])
        if text != strings[row]:
            if text not in row_of:
                row_of[text] = len(strings)
                strings.append(text)
            renamed[row] = row_of[text]
    name = np.where(tree.kind == NodeKind.MODULE, renamed[tree.name], tree.name)
    return rebuild(Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=name, detail=tree.detail, forward=tree.forward,
        strings=strings, metrics=tree.metrics, info=tree.info,
    ), keep_forward=True)  # fmt: skip
