"""LAU102."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, device_sum, host_cost, per
from lanewise.diagnose.what_if.remedies import fuse, remove
from lanewise.diagnose.what_if.spelled_out import function_of
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.biases import biases_apart
from lanewise.measure.launch.launch_cost import own_cost
from lanewise.replay.change import add
from lanewise.report.evidence_columns import COUNT, DEVICE, HOST, OPERATOR, SHAPES, headed
from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import count, text, time

_SHOWN = 5


class _Pattern(NamedTuple):
    """What chains have in common: names of their operators, elements, bytes per element."""

    names: tuple[int, ...]
    elements: int
    item_bytes: int


@rule(
    "LAU102",
    "unfused-pointwise-chain",
    title="{kernels} {per} run in {chains} over {same} elements ({example}): fused, each chain is one kernel, {fewer} "
    "fewer{biases}.",
)
def unfused_pointwise_chain(facts: Facts, *, kernels_from: int = 2) -> Outcome:
    """Pointwise kernels follow each other over the same elements.

    Each of them reads all elements from memory, does a little arithmetic and writes them back, only for the next one to
    read them again; and each is an operator and a launch on the host. One fused kernel reads once and writes once. A
    reduction whose result goes back to the same elements, as in a softmax written out, is part of the chain. A bias that
    is added behind a matrix product, and nothing behind it, is one, too: the product can add it.

    Costs: on the device every kernel of a chain but the longest, and of that one what it takes beyond moving its operands
    at the memory's peak; on the host every operator but the most expensive, less what calling compiled code takes: about
    40 us for each chain that is worth it and comes several times, or 20 us once for all. Where torch has the whole chain
    as one operator (GELU, SiLU, softmax written out) nothing needs to be compiled. A bias costs its operator.

    Fix: the one operator that torch has for it (the finding names it), `torch.compile` the function around them, or a
    hand-written kernel; after a matrix product an epilogue absorbs the chain at no cost.

    Verify: one `triton_poi_fused_<operators>` kernel in place of the chain, the names of the matrix products unchanged,
    and equal results within tolerance.

    Silent: inside compiled regions and replayed graphs, across streams, and where the number of elements changes. With
    shapes a chain may step over one matrix product that does not read it (medium confidence); without shapes the grid
    stands in for the number of elements (medium confidence).

    Source: huggingface/blog torch-mlp-fusion; "Making Deep Learning Go Brrrr"; PyTorch's tuning guide.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("no device work")
    chains = facts.pointwise_chains
    length = np.bincount(chains.chain, minlength=len(chains))
    chosen = length >= kernels_from
    biases = np.setdiff1d(biases_apart(facts), chains.row)
    if not chosen.any():
        if len(biases):
            return _biases(facts, biases)
        return Clear("no two pointwise kernels in a row over the same elements")

    steps = facts.steady_count
    event = trace.device_work[chains.row]
    call = trace.links.launch[chains.row]
    duration = trace.duration[event].astype(np.float64)
    cost = np.zeros(len(trace))
    cost[facts.launches.call] = own_cost(facts)
    longest, beyond = _largest(duration, chains.chain, len(chains)), _beyond_one_pass(facts, duration)
    device = _but_one(duration, chains.chain, len(chains)) + beyond
    host = _but_one(cost[call], chains.chain, len(chains))
    mine = np.flatnonzero(chosen)
    patterns = _patterns(facts, chosen, length)
    functions = _functions(facts, patterns)
    rows, first = _rows(facts, patterns, device, host)
    kernels = int(length[chosen].sum())
    number = int(np.count_nonzero(chosen))
    measured = bool(chains.measured[chosen].all())
    mostly_adjacent = float(host[chosen & ~chains.across].sum()) >= 0.5 * float(host[chosen].sum())
    return Found(
        values={
            "kernels": counted(kernels / steps, "pointwise kernel", "pointwise kernels"),
            "chains": counted(number / steps, "chain", "chains"),
            "fewer": count(round((kernels - number) / steps, 1)),
            "example": text(rows[0]["operators"]),
            "biases": text(f"; and a product could add each of {len(biases) / steps:g} biases" if len(biases) else ""),
            "same": text("the same" if measured else "about as many"),
            "per": per(facts),
            "device": time(float(device[chosen].sum()) / steps),
            "host": time(float(host[chosen].sum()) / steps),
        },
        change=fuse(facts, [event[chains.chain == one] for one in mine.tolist()], longest[mine] - beyond[mine])
        + remove(facts, trace.device_work[biases])
        + add(host_ns=_calling(facts, patterns, host)),
        spread=0.2,
        fix=f"{functions}; {_FIX}" if functions else None,
        confidence="high" if measured and mostly_adjacent else "medium",
        evidence=[
            table(
                "Chains, by what fusing them saves",
                [
                    TableColumn("operators", "text", "operators in order"),
                    headed(COUNT, "times per step"),
                    TableColumn("elements", "count", "elements"),
                    TableColumn("hop", "bytes", "written and read again per hop"),
                    headed(DEVICE, "device time saved"),
                    headed(HOST, "host time saved"),
                ],
                rows,
            ),
            *([_bias_table(facts, biases)] if len(biases) else []),
        ],
        location=locate(facts, int(call[first])),
        events=[*_removed(call, chains.chain, chosen).tolist(), *claim(facts, biases)],
    )


# What calling a compiled function costs the host beyond the operator that is left of a chain: 29 us each for sixteen that
# multiply once, 42 for six that fuse a chain (`benchmarks/replay` on an H200: compiled_too_small, chain-small).
_COMPILED_CALL_NS = 40_000.0
# One for all of the code around them: what Python did between its operators is gone in exchange.
_COMPILED_ONCE_NS = 20_000.0

_FIX = (
    "`torch.compile` the function around the others, or write a kernel by hand; after a matrix product an epilogue absorbs "
    "a chain at no cost."
)


def _calling(facts: Facts, patterns: dict[_Pattern, list[int]], host: np.ndarray) -> float:
    """What calling compiled code takes the host in a step once the chains are fused, ns: a call wherever the commonest
    chain comes that is worth a compiled function by itself, such as one in each layer; otherwise one for all of the code
    around them. Nothing where torch has an operator for all of them."""
    trace, steps = facts.trace, facts.steady_count
    others = [members for p, members in patterns.items() if not function_of(trace.names[name] for name in p.names)]
    worth = [len(members) / steps for members in others if host[members].sum() > _COMPILED_CALL_NS * len(members)]
    calls = max(worth, default=0.0)
    return _COMPILED_CALL_NS * calls if calls > 1 else _COMPILED_ONCE_NS if others else 0.0


def _functions(facts: Facts, patterns: dict[_Pattern, list[int]]) -> str:
    """The chains that torch has an operator for, as what to write instead; "" for none."""
    found: dict[str, str] = {}
    for pattern in patterns:
        operators = [facts.trace.names[name] for name in pattern.names]
        if function := function_of(operators):
            found.setdefault(function, _abbreviated(operators))
    return ", ".join(f"`{function}` is {operators} as one operator" for function, operators in found.items())


def _biases(facts: Facts, rows: np.ndarray) -> Found:
    """No chains, but biases that the products before them could add."""
    call = facts.trace.links.launch[rows]
    return Found(
        title=_BIAS_TITLE,
        fix="`torch.nn.functional.linear(x, weight, bias)`, or `torch.addmm(bias, x, weight)`.",
        values={
            "biases": counted(len(rows) / facts.steady_count, "bias", "biases"),
            "per": per(facts),
            "device": time(device_sum(facts, rows)),
            "host": time(host_cost(facts, call)),
        },
        change=remove(facts, facts.trace.device_work[rows]),
        evidence=[_bias_table(facts, rows)],
        location=locate(facts, int(call[0])),
        events=claim(facts, rows),
    )


def _bias_table(facts: Facts, rows: np.ndarray) -> TableBlock:
    trace, steps = facts.trace, facts.steady_count
    example, group = facts.signatures.groups(trace.links.operator[rows])
    spent = np.bincount(group, weights=trace.duration[trace.device_work[rows]])
    return table(
        "Biases added behind a product",
        [OPERATOR, headed(SHAPES, "product, bias"), COUNT, headed(DEVICE, "device time")],
        [
            {
                "operator": trace.name_of(int(example[at])),
                "shapes": shapes_label(facts, int(example[at])),
                "count": float(np.count_nonzero(group == at)) / steps,
                "device": float(spent[at]) / steps,
            }
            for at in np.argsort(-spent, kind="stable").tolist()
        ],
    )


_BIAS_TITLE = (
    "{biases} {per} added by an operator of its own behind a matrix product, which could add it at no cost: {device} on "
    "the GPU, {host} on the host."
)


def _but_one(value: np.ndarray, chain: np.ndarray, count: int) -> np.ndarray:
    """Sum of each chain less its largest member: what goes away if the others join that one."""
    return np.bincount(chain, weights=value, minlength=count) - _largest(value, chain, count)


def _largest(value: np.ndarray, chain: np.ndarray, count: int) -> np.ndarray:
    """The largest member of each chain."""
    largest = np.zeros(count)
    np.maximum.at(largest, chain, value)
    return largest


def _beyond_one_pass(facts: Facts, duration: np.ndarray) -> np.ndarray:
    """Time per chain, ns, by which its longest kernel exceeds one pass over its operands at the memory's peak; 0 where
    operands or peak are not known. No kernel is taken to become shorter than the shortest of its chain."""
    chains, peak = facts.pointwise_chains, facts.device.peak
    if peak is None:
        return np.zeros(len(chains))
    longest, shortest = _largest(duration, chains.chain, len(chains)), np.full(len(chains), np.inf)
    np.minimum.at(shortest, chains.chain, duration)
    one_pass = np.maximum(chains.touched / peak.bandwidth * 1e9, shortest)
    return np.where(chains.measured & (chains.touched > 0), np.maximum(0.0, longest - one_pass), 0.0)


def _removed(call: np.ndarray, chain: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The launches that fusing removes: all of a chain but its first."""
    later = np.concatenate(([False], chain[1:] == chain[:-1])) if len(chain) else np.zeros(0, dtype=bool)
    return call[later & chosen[chain]]


def _patterns(facts: Facts, chosen: np.ndarray, length: np.ndarray) -> dict[_Pattern, list[int]]:
    """Chains grouped by operators and size."""
    trace, chains = facts.trace, facts.pointwise_chains
    operator = trace.name[trace.links.operator[chains.row]]
    begin = np.concatenate(([0], np.cumsum(length)))
    groups: dict[_Pattern, list[int]] = {}
    for chain in np.flatnonzero(chosen).tolist():
        names = tuple(operator[begin[chain] : begin[chain + 1]].tolist())
        pattern = _Pattern(names, int(chains.elements[chain]), int(chains.item_bytes[chain]))
        groups.setdefault(pattern, []).append(chain)
    return groups


def _rows(
    facts: Facts, patterns: dict[_Pattern, list[int]], device: np.ndarray, host: np.ndarray
) -> tuple[list[dict[str, Any]], int]:
    """Rows of the table, the dearest first; and the first kernel of the dearest."""
    trace, chains = facts.trace, facts.pointwise_chains
    by_side = device if facts.regime.name == "compute" else host
    ordered = sorted(patterns.items(), key=lambda item: -float(by_side[item[1]].sum()))
    steps = facts.steady_count
    rows: list[dict[str, Any]] = []
    for pattern, members in ordered:
        rows.append(
            {
                "operators": _abbreviated([trace.names[name] for name in pattern.names]),
                "count": round(len(members) / steps, 1),
                "elements": pattern.elements,
                "hop": 2 * pattern.elements * pattern.item_bytes or -1,
                "device": float(device[members].sum()) / steps,
                "host": float(host[members].sum()) / steps,
            }
        )
    return rows, int(np.searchsorted(chains.chain, ordered[0][1][0]))


def _abbreviated(names: list[str]) -> str:
    short = [name.removeprefix("aten::") for name in names]
    more = f" ... ({len(short)} in all)" if len(short) > _SHOWN else ""
    return " > ".join(short[:_SHOWN]) + more
