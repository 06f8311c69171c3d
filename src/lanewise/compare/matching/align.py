"""Which work of one run is which work of the other.

Passes, each on what the ones before left over:

    1. in order    the best monotone pairing by how alike two ops are (same kernel, same product with another epilogue,
                   another kernel for the same operator ...)
    2. moved       equal ops in another order
    3. fused       what one kernel does of several, on either side: an operator written out (`composite`), chains that
                   a generated kernel covers (`fusion`)
    4. epilogue    pointwise work that a matrix product took over, and the copies that this needs

What is left appeared or vanished, and is shown as such with its time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.compare.matching.composite import find_composites
from lanewise.compare.matching.fusion import find_fused
from lanewise.compare.matching.kernels import Identity, identity
from lanewise.compare.matching.labels import host_group
from lanewise.compare.matching.sequence import pair_up
from lanewise.compare.model import How
from lanewise.compare.sides.step_work import Op, Work

__all__ = ["Match", "align"]


@dataclass(frozen=True)
class Match:
    """Positions of A and B that are the same work.

    Attributes:
        a, b: positions in the order of the step; one of them is empty only for `graph input`.
        how: see `lanewise.compare.model.How`.
        sure: whether names (or names and sizes) say so; False where only the order does.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    how: How
    sure: bool = True


# Families of which one kernel is the work of one operator, whatever the library chose.
_HEAVY = ("gemm", "convolution", "attention", "communication", "optimizer")

_SAME, _LAUNCH, _NAME, _EPILOGUE, _KERNEL, _KIN = 100, 70, 60, 50, 35, 25


def align(a: Work, b: Work) -> list[Match]:
    """Match the typical steps of two runs; positions in no match appeared or vanished."""
    if len(a.at) == 0 or len(b.at) == 0:
        return []
    weight, how = _alike(a.ops, b.ops)
    pairs = pair_up(a.at, b.at, weight)
    mirrored = [(j, i) for i, j in pairs]
    matches = [Match((i,), (j,), how[a.at[i]][b.at[j]]) for i, j in pairs]
    free_a, free_b = _free(matches, len(a.at), len(b.at))
    matches += _moved(a, b, free_a, free_b, weight)
    free_a, free_b = _free(matches, len(a.at), len(b.at))
    for find in (find_composites, find_fused):
        for match in find(a, b, pairs, free_a, free_b):
            matches.append(Match(match.many, (match.one,), "fused", match.sure))
        free_a, free_b = _free(matches, len(a.at), len(b.at))
        for match in find(b, a, mirrored, free_b, free_a):
            matches.append(Match((match.one,), match.many, "split", match.sure))
        free_a, free_b = _free(matches, len(a.at), len(b.at))
    matches += [Match(many, (j,), "fused", sure=False) for j, many in _into_graphs(a, b, pairs, free_a, free_b)]
    matches += [Match((i,), many, "split", sure=False) for i, many in _into_graphs(b, a, mirrored, free_b, free_a)]
    free_a, free_b = _free(matches, len(a.at), len(b.at))
    matches = [_absorbed(a, b, match, free_a, free_b) for match in matches]
    matches += [Match((position,), (), "graph input") for position in _graph_inputs(a, free_a)]
    matches += [Match((), (position,), "graph input") for position in _graph_inputs(b, free_b)]
    return sorted(matches, key=lambda match: (match.b or (1 << 60,), match.a))


def _free(matches: list[Match], n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Which positions of each side no match covers yet."""
    free_a, free_b = np.ones(n, dtype=bool), np.ones(m, dtype=bool)
    for match in matches:
        free_a[list(match.a)] = False
        free_b[list(match.b)] = False
    return free_a, free_b


def _alike(a: list[Op], b: list[Op]) -> tuple[np.ndarray, list[list[How]]]:
    """How alike each op of A is to each of B, int32 (0: not the same work), and in what way."""
    left, right = [identity(op.name) for op in a], [identity(op.name) for op in b]

    def equal(x: list[object], y: list[object]) -> np.ndarray:
        codes: dict[object, int] = {}
        first = np.array([codes.setdefault(value, len(codes)) for value in x])
        second = np.array([codes.setdefault(value, len(codes)) for value in y])
        return first[:, None] == second[None, :]

    def of_ops(key: str) -> np.ndarray:
        return equal([getattr(op, key) for op in a], [getattr(op, key) for op in b])

    kind = of_ops("kind")
    raw = of_ops("name") & kind
    launch = of_ops("launch")
    operators = np.array([op.kind == "operator" for op in a])[:, None] & kind
    size = of_ops("bytes") & (of_ops("shapes") | ~operators)
    name = equal([i.name for i in left], [i.name for i in right]) & kind
    base = equal([i.base for i in left], [i.base for i in right]) & kind
    operator = equal([_operator(op) for op in a], [_operator(op) for op in b])
    known = np.array([op.operators != () for op in a])[:, None] & np.array([op.operators != () for op in b])[None, :]
    families = equal([i.family for i in left], [i.family for i in right]) & kind
    fused = np.array([bool(i.fused) for i in left])[:, None] | np.array([bool(i.fused) for i in right])[None, :]
    heavy = np.array([i.family in _HEAVY for i in left])[:, None] & families
    kernel = np.array([op.kind == "kernel" for op in a])[:, None] & kind

    ladder: list[tuple[np.ndarray, int, How]] = [
        (kernel & raw & launch, _SAME, "same"),
        (kernel & raw, _LAUNCH, "launch"),
        (kernel & name, _NAME, "name"),
        (kernel & base, _EPILOGUE, "epilogue"),
        (kernel & families & operator & known & ~fused, _KERNEL, "kernel"),
        (kernel & heavy & ~(known & ~operator & _both_graphless(a, b)), _KIN, "kernel"),
        (~kernel & raw & size, _SAME, "same"),
        (~kernel & raw, _NAME, "size"),
        (~kernel & name, _EPILOGUE, "size"),
    ]
    weight = np.zeros(kind.shape, dtype=np.int32)
    row = np.full(kind.shape, -1, dtype=np.int8)
    for step, (holds, value, _) in enumerate(ladder):
        first = holds & (row < 0)
        weight[first] = value
        row[first] = step
    _generated(weight, row, left, right, ladder)
    # Among equals the op of the same operator, and with the same sizes, is the better partner.
    weight[(weight > 0) & operator & known] += 6
    weight[(weight > 0) & of_ops("shapes")] += 3
    labels: list[How] = [how for _, _, how in ladder]
    return weight, [[labels[i] if i >= 0 else "same" for i in line.tolist()] for line in row]


def _generated(
    weight: np.ndarray,
    row: np.ndarray,
    left: list[Identity],
    right: list[Identity],
    ladder: list[tuple[np.ndarray, int, How]],
) -> None:
    """Two generated kernels that cover mostly the same operators are one kernel, generated anew."""
    kernel = [how for _, _, how in ladder].index("kernel")
    sets_b = [(j, frozenset(i.fused)) for j, i in enumerate(right) if i.fused]
    for at, one in enumerate(left):
        if not one.fused:
            continue
        mine = frozenset(one.fused)
        for j, other in sets_b:
            shared = len(mine & other) / len(mine | other)
            if weight[at, j] == 0 and shared >= 0.5:
                weight[at, j] = round(_KIN * shared)
                row[at, j] = kernel


def _both_graphless(a: list[Op], b: list[Op]) -> np.ndarray:
    """Neither op is a graph node: their operators are the ones that launched them."""
    return ~np.array([op.graph for op in a])[:, None] & ~np.array([op.graph for op in b])[None, :]


_PRODUCTS = frozenset({"mm", "addmm", "matmul", "linear", "_addmm_activation"})
_BATCHED = frozenset({"bmm", "baddbmm"})


def _operator(op: Op) -> str:
    """The operator that an op works for; a product is the same with and without an addend."""
    name = op.operators[0].rsplit("::", 1)[-1].split(".", 1)[0] if op.operators else ""
    if name in _PRODUCTS:
        return "mm"
    return "bmm" if name in _BATCHED else name.removesuffix("_")


def _moved(a: Work, b: Work, free_a: np.ndarray, free_b: np.ndarray, weight: np.ndarray) -> list[Match]:
    """Equal ops that are left over on both sides, in their order."""
    waiting: dict[int, list[int]] = {}
    for j in np.flatnonzero(free_b).tolist():
        waiting.setdefault(int(b.at[j]), []).append(j)
    matches: list[Match] = []
    for i in np.flatnonzero(free_a).tolist():
        row = weight[a.at[i]]
        candidates = [op for op, places in waiting.items() if places and row[op] >= _SAME]
        if candidates:
            best = max(candidates, key=lambda op: row[op])
            matches.append(Match((i,), (waiting[best].pop(0),), "moved"))
    return matches


def _into_graphs(
    many: Work, one: Work, pairs: list[tuple[int, int]], free_many: np.ndarray, free_one: np.ndarray
) -> list[tuple[int, tuple[int, ...]]]:
    """Without a device, what a compiled graph computes has no rows: operators that are gone are inside of it."""
    graphs = [j for j in np.flatnonzero(free_one).tolist() if _is_graph(one.ops[one.at[j]])]
    gone = [i for i in np.flatnonzero(free_many).tolist() if _may_be_compiled(many.ops[many.at[i]])]
    if not graphs or not gone:
        return []
    fences_many, fences_one = np.array([(-1, -1), *pairs]).T
    inside: dict[int, list[int]] = {}
    for i in gone:
        # A graph's row begins before the operators that it still calls: the last one begun is the one around.
        reached = fences_one[np.searchsorted(fences_many, i, side="right") - 1]
        begun = [j for j in graphs if j <= reached]
        inside.setdefault(begun[-1] if begun else graphs[0], []).append(i)
    return [(j, tuple(found)) for j, found in inside.items()]


def _may_be_compiled(op: Op) -> bool:
    return op.kind == "operator" and host_group(op.name) != "compiler"


def _is_graph(op: Op) -> bool:
    return op.kind == "operator" and op.name == "CompiledFxGraph"


_SMALL = ("pointwise", "reduction", "triton", "copy kernel", "other")


def _absorbed(a: Work, b: Work, match: Match, free_a: np.ndarray, free_b: np.ndarray) -> Match:
    """A match of products together with what the epilogue of one of them took over, and the copy that it needs."""
    if match.how != "epilogue":
        return match
    (i,), (j,) = match.a, match.b
    before, after = identity(a.ops[a.at[i]].name), identity(b.ops[b.at[j]].name)
    more_a = _beside(a, i, free_a, _covers(before, after))
    more_b = _beside(b, j, free_b, _covers(after, before))
    if "badd" in before.epilogue:
        more_a += _feeding(a, i, free_a)
    if "badd" in after.epilogue:
        more_b += _feeding(b, j, free_b)
    if not (more_a or more_b):
        return match
    free_a[more_a] = False
    free_b[more_b] = False
    return Match(tuple(sorted((i, *more_a))), tuple(sorted((j, *more_b))), "absorbed")


_EPILOGUE_WORK = {"badd": {"add", "sub"}, "bias": {"add"}, "relu": {"relu"}, "gelu": {"gelu"}, "aux": {"relu", "gelu"}}


def _covers(less: Identity, more: Identity) -> set[str]:
    """Operators that the second epilogue does beyond the first."""
    words = set(more.epilogue) - set(less.epilogue)
    return set().union(*(_EPILOGUE_WORK.get(word, set()) for word in words))


def _beside(work: Work, position: int, free: np.ndarray, operators: set[str]) -> list[int]:
    """The unmatched pointwise op right after a product that does one of the given things."""
    at = position + 1
    if at < len(work.at) and free[at] and operators:
        op = work.ops[work.at[at]]
        if op.kind == "kernel" and identity(op.name).family in _SMALL and _operator(op) in operators:
            return [at]
    return []


def _feeding(work: Work, position: int, free: np.ndarray) -> list[int]:
    """The unmatched device-to-device copy before a product, with nothing but sets between."""
    at = position - 1
    while at >= 0 and work.ops[work.at[at]].kind == "set":
        at -= 1
    return [at] if at >= 0 and free[at] and _is_device_copy(work.ops[work.at[at]]) else []


def _is_device_copy(op: Op) -> bool:
    """A device-to-device copy; small ones inside of a graph run as a kernel of the driver's."""
    return (op.kind == "copy" and "DtoD" in op.name) or (op.kind == "kernel" and op.name.startswith("memcpy"))


def _graph_inputs(work: Work, free: np.ndarray) -> list[int]:
    """Unmatched copies of inputs to the fixed addresses of a graph that is replayed right after."""
    found: list[int] = []
    waiting: list[int] = []
    for position, at in enumerate(work.at.tolist()):
        op = work.ops[at]
        if op.graph:
            found += waiting
            waiting = []
        elif free[position] and op.operators and op.operators[0] in {"aten::_foreach_copy_", "aten::copy_"}:
            waiting.append(position)
        else:
            waiting = []
    return found
