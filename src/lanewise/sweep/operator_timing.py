"""Times the operators of a recorded step by themselves, with the arguments that they would have at other batch sizes.

A process of its own: `python -I -c "... main()"` reads an `Order` on standard input and writes a `Timed` a line, as it
goes, so that an operator that crashes costs itself and the rest of this process, not what was timed before.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from lanewise.capture.lazy_torch import torch_part
from lanewise.capture.timing.yardstick import Yardstick
from lanewise.sweep.growth import Growth
from lanewise.sweep.operator_arguments import Arguments, Given

__all__ = ["WHOLE", "YARDSTICK", "Call", "OperatorTiming", "Order", "Timed", "main"]

WHOLE = -1
"""In place of a call: all that could be timed, one after another."""
YARDSTICK = -2
"""In place of a call: the yardstick, once, meanwhile."""

_LEAST_ROUNDS, _MOST_ROUNDS, _ROUNDS_S = 4, 12, 4.0
_TURN_S, _TURN_STEPS = 0.01, 2
_GRAPH_CALLS, _LEAST_REPLAYS, _MOST_REPLAYS, _REPLAYS_S = 10, 3, 7, 0.02
# Of glibc's malloc.h; and the largest block that it learns to keep by itself.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _KEPT_BYTES = -1, -3, 32 << 20


class Call(msgspec.Struct, frozen=True):
    """An operator of one step.

    Attributes:
        name: of the operator. arguments: None where they were not recorded.
        parent: place of the one around it, -1 for none. turn: when it is called, among all.
        kept: whether what it makes is kept for a backward pass.
    """

    name: str
    arguments: list[Given] | None
    parent: int
    turn: int = 0
    kept: bool = False


class Order(msgspec.Struct, frozen=True):
    """What to time.

    Attributes:
        calls: the operators of a step, parents first. skip: calls not to be tried.
        batch: the batch size of the recording. sizes: the batch sizes to time at, that of the recording first.
        parameters: shapes of the program's parameters.
        device: `cpu`, or the device that the operators run on.
        threads: of a CPU that operators use; 0 for torch's own choice.
    """

    calls: list[Call]
    skip: list[int]
    batch: int
    sizes: list[int]
    parameters: list[tuple[int, ...]]
    device: str
    threads: int


class Timed(msgspec.Struct, frozen=True):
    """A call, or `WHOLE`, and its times at each size, seconds; none where it is about to be tried. Or `YARDSTICK` and a
    single time."""

    call: int
    seconds: list[float]


def main() -> None:
    """Read an order, write what was timed."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    torch = torch_part()
    _set_up(torch, order.threads)

    def say(timed: Timed) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(timed) + b"\n")
        sys.stdout.buffer.flush()

    with torch.no_grad():
        timing = OperatorTiming(torch, order)
        for timed in timing.one_by_one():
            say(timed)
        if timing.known and order.device == "cpu":
            say(Timed(WHOLE, timing.in_turns()))
            say(Timed(YARDSTICK, [timing.yardstick_s]))


@dataclass
class _Made:
    """A call that can be made again and again.

    Attributes:
        operator, arguments, named: what is called with what. growing: places among `arguments` that grow with the batch.
        sources: places that get what an earlier call made: its turn, which of several results, and the shape and strides
            to read it with, where those are others.
        read: whether a later call gets what this one makes. over: turns whose results nobody reads after this call.
    """

    operator: Any
    arguments: list[Any]
    named: dict[str, Any]
    growing: list[int]
    sources: list[tuple[int, int, int, Any]] = field(default_factory=list)
    read: bool = False
    over: list[int] = field(default_factory=list)


class OperatorTiming:
    """The operators of an order.

    Attributes:
        known: those that can be made, by call. yardstick_s: how long the yardstick took while they had turns, seconds.
    """

    def __init__(self, torch: Any, order: Order) -> None:
        self.known: dict[int, Any] = {}
        self.yardstick_s = 0.0
        self._torch = torch
        self._order = order
        self._on_device = order.device != "cpu"
        self._growth = [Growth(order.batch, size, frozenset(order.parameters)) for size in order.sizes]
        self._tried: dict[bytes, tuple[Any, list[float]] | None] = {}
        recorded = (given for call in order.calls for given in call.arguments or [])
        self._arguments = Arguments(torch, order.device, self._growth, recorded)
        # One thread's CPU time is what its operators take, whoever else uses the machine meanwhile.
        self._now = time.thread_time if order.threads == 1 else time.perf_counter

    def one_by_one(self) -> Iterator[Timed]:
        """Each call that has a kernel of its own, from the outermost in, as those inside of one are part of it."""
        part: set[int] = set()
        for place, call in enumerate(self._order.calls):
            if call.parent in part:
                part.add(place)
            elif place not in self._order.skip and call.arguments is not None:
                key = msgspec.json.encode((call.name, call.arguments))
                if key not in self._tried:
                    yield Timed(place, [])
                    self._tried[key] = None
                    with suppress(Exception):
                        self._tried[key] = self._try(call.name, call.arguments)
                if (tried := self._tried[key]) is not None:
                    part.add(place)
                    self.known[place] = tried[0]
                    yield Timed(place, tried[1])

    def in_turns(self) -> list[float]:
        """Seconds that all calls take one after another, as in a step, at each size.

        Each size has a turn, again and again, so that a machine that others slow down for a second does so to all of them.
        """
        rounds: list[list[float]] = []
        begun = time.perf_counter()
        turns = self.turns()
        yardstick, paces = Yardstick(), list[float]()
        while len(rounds) < _LEAST_ROUNDS or (len(rounds) < _MOST_ROUNDS and time.perf_counter() - begun < _ROUNDS_S):
            rounds.append([turn() for turn in turns])
            paces.append(yardstick.us() / 1e6)
        self.yardstick_s = statistics.quantiles(paces, n=4)[0]
        return [statistics.quantiles(times, n=4)[0] for times in zip(*rounds, strict=True)]

    def turns(self) -> list[Callable[[], float]]:
        """For each size what takes the seconds of a step of all calls, as a mean."""
        return [partial(self._turn, self._step(growth)) for growth in self._growth]

    def _try(self, name: str, arguments: list[Given]) -> tuple[Any, list[float]] | None:
        """The operator of a call, and its seconds at each size; None where the call cannot be made."""
        operator = self._arguments.find(name, arguments)
        if operator is None:
            return None
        found: list[float] = []
        for growth in self._growth:
            args, named = self._arguments.make(operator, arguments, growth)
            self._arguments.forget()
            if self._on_device:
                found.append(_on_device(self._torch, lambda args=args, named=named: operator(*args, **named)))
            else:
                begun = time.perf_counter()
                operator(*args, **named)
                found.append(time.perf_counter() - begun)
        return operator, found

    def _turn(self, calls: list[_Made]) -> float:
        """Mean seconds of a step, after one that is not timed: what another size left in the caches is gone."""
        # Processors are slow with the least numbers: few programs have such, what is made here may.
        self._torch.set_flush_denormal(True)
        _run(calls)
        count, begun = 0, self._now()
        while (took := self._now() - begun) < _TURN_S or count < _TURN_STEPS:
            _run(calls)
            count += 1
        self._torch.set_flush_denormal(False)
        return took / count

    def _step(self, growth: Growth) -> list[_Made]:
        """The calls of a step in their order, with arguments."""
        places = sorted(self.known, key=lambda place: self._order.calls[place].turn)
        made: list[_Made] = []
        for place in places:
            operator, recorded = self.known[place], self._order.calls[place].arguments or []
            args, named = self._arguments.make(operator, recorded, growth)
            made.append(_Made(operator, args, named, self._arguments.growing(operator, recorded)))
        self._arguments.forget()
        self._pass_on(made, [self._order.calls[place].kept for place in places])
        return made

    def _pass_on(self, calls: list[_Made], kept: Sequence[bool]) -> None:
        """Let calls read what others made, as in the program: what was just made is still in the caches, and what the
        forward pass kept for the backward pass has left them.

        Which call reads what is not recorded. What is as large as the last result of that size is taken for it. Of a
        backward call that is so of the first argument, mostly the gradient; the others get what was kept, the last first.
        """
        last: dict[tuple[Any, int], tuple[int, int, Any]] = {}
        saved: dict[tuple[Any, int], list[tuple[int, int, Any]]] = {}
        reader: dict[int, int] = {}
        for turn, (call, keep) in enumerate(zip(calls, kept, strict=True)):
            given = [place for place in call.growing if self._is_passed_on(call.arguments[place])]
            for place in given:
                one = call.arguments[place]
                key = _size(one)
                stack = saved.get(key) if not keep and place != given[0] else None
                if stack:
                    stack.insert(0, stack.pop())
                found = stack[0] if stack else last.get(key)
                # One result in two places would be read once; and not be written to, where its shape is another.
                if found and found[:2] not in [source[1:3] for source in call.sources]:
                    source, part, made = found
                    same = made.shape == one.shape and made.stride() == one.stride()
                    call.sources.append((place, source, part, None if same else (one.shape, one.stride())))
                    reader[source] = turn
            for part, one in enumerate(_results(call.operator(*call.arguments, **call.named))):
                if self._is_passed_on(one) and one.is_contiguous():
                    last[_size(one)] = turn, part, one
                    if keep:
                        saved.setdefault(_size(one), []).append((turn, part, one))
        for turn, at in reader.items():
            calls[turn].read = True
            calls[at].over.append(turn)

    def _is_passed_on(self, value: Any) -> bool:
        """Indices are not, as one of another tensor may be out of bounds; nor is what has gaps."""
        if not isinstance(value, self._torch.Tensor) or not (
            value.is_floating_point() or value.dtype == self._torch.bool
        ):
            return False
        reach = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
        return reach < value.numel()


def _set_up(torch: Any, threads: int) -> None:
    """Make this process, which does nothing else, one to time in; of no threads torch chooses how many."""
    _keep_memory()
    if threads:
        torch.set_num_threads(threads)


def _keep_memory() -> None:
    """Keep what a step frees, as a program does.

    A program's long-lived tensors lie above what its steps free, so that malloc can give nothing back to the system. Here
    nothing lies above: each step would get its memory anew, page by page. Measured on a virtual machine: up to 2,400 page
    faults a step of a network that has none itself, which made it 1.5 times as long.
    """
    if sys.platform != "linux":
        return
    with suppress(AttributeError):  # another C library, which has no such setting
        adjust = ctypes.CDLL(None).mallopt
        adjust(_M_TRIM_THRESHOLD, 2**31 - 1)
        adjust(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def _run(calls: list[_Made]) -> None:
    """One step."""
    made: dict[int, Sequence[Any]] = {}
    for turn, call in enumerate(calls):
        arguments = call.arguments
        if call.sources:
            arguments = list(arguments)
            for place, source, part, other in call.sources:
                one = made[source][part]
                arguments[place] = one if other is None else one.as_strided(*other)
        result = call.operator(*arguments, **call.named)
        if call.read:
            made[turn] = _results(result)
        for source in call.over:
            del made[source]


def _size(tensor: Any) -> tuple[Any, int]:
    return tensor.dtype, tensor.numel()


def _results(made: Any) -> Sequence[Any]:
    return made if isinstance(made, (tuple, list)) else (made,)


def _on_device(torch: Any, call: Callable[[], Any]) -> float:
    """Seconds that the device works for a call: from a graph, so that the host does not hold it up."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_GRAPH_CALLS):
            call()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found: list[float] = []
    while len(found) < _LEAST_REPLAYS or (len(found) < _MOST_REPLAYS and sum(found) * _GRAPH_CALLS < _REPLAYS_S):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / _GRAPH_CALLS)
    return sorted(found)[len(found) // 4]
