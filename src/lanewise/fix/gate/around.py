"""What is around a call: calls before it, other threads, copies of the module, settings of the process, memory."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Variant, taken_off
from lanewise.fix.gate.exchanged import exchanged_values
from lanewise.fix.gate.inputs import near, other_values
from lanewise.fix.model import Check
from lanewise.fix.process_settings import changed_settings, put_back, settings
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call, tensors_of, values_of
from lanewise.fix.typed_torch import torch

__all__ = ["Around", "leaves_nothing"]


Close = Callable[[list[Any], list[Any]], bool]
"""Of all outputs of two calls with the same arguments."""

_IN_A_ROW, _THREADS, _A_THREAD, _COUNTED = 3, 3, 6, 8
_MOST_COPIED = 1 << 22
"""Elements of parameters up to which a module is copied and pickled."""
_LONGEST_S = 20.0
_NO_ROOM = "as many calls at the same time do not fit into memory"


class Around:
    """The checks; what the original gives is found out once.

    Args:
        subject: unpatched; no training step. close: whether outputs agree.
    """

    def __init__(self, subject: Subject, state: State, close: Close) -> None:
        self._subject, self._state, self._close = subject, state, close
        self._row = self._in_a_row()
        first = subject.calls[0]
        others = [first, other_values(first), *(one.make() for one in near(first)[:1])]
        self._calls = others[:_THREADS] if tensors_of(first) else []
        self._alone = [self._once(call) for call in self._calls]
        parallel = subject.kind == "inference" and not subject.random and not subject.mutates
        self._parallel = parallel and bool(self._calls) and not state.written()
        self._copies = subject.module is not None and self._copied() is not None
        self._kept = self._growth()

    def check(self, variant: Variant) -> list[Check]:
        """The checks, with the candidate, which is the variant, in place."""
        same = self._close(self._row, self._in_a_row())
        text = "" if same else "after other calls, without anything put back in between, results or buffers are others"
        checks = [Check("C2 in a row", same, text)]
        if self._parallel:
            problem = self._threads()
            # Whether the original can be called like that is asked only then: libraries look for kernels in every thread.
            self._parallel = problem in ("", _NO_ROOM) or self._original_takes_threads(variant)
            judged = self._parallel and problem != _NO_ROOM
            checks += [Check("C2 from several threads", not problem, problem)] if judged else []
        if self._copies:
            found = self._copied()
            problem = "it cannot be copied or saved any more" if found is None else ""
            if found is not None and not self._close(self._alone[0] if self._alone else found, found):
                problem = "a copy of the module does not compute with its own weights"
            checks.append(Check("C4 a copy", not problem, problem))
        return checks

    def check_memory(self) -> Check:
        """Whether every call leaves another tensor behind, which the original's do not."""
        grown = self._growth()
        bad = grown >= max(_COUNTED, self._kept + _COUNTED)
        return Check("C2 memory", not bad, f"{grown} tensors more after {_COUNTED} calls" if bad else "")

    def _in_a_row(self) -> list[Any]:
        """Outputs of the last of several calls, and the buffers that these leave."""
        subject = self._subject
        try:
            seed(subject, 0)
            outputs: list[Any] = []
            for _ in range(_IN_A_ROW):
                call = copy_call(subject.calls[0])
                outputs = [values_of(t) for t in tensors_of(subject.entry(*call[0], **call[1]))]
            return [*outputs, *map(values_of, subject.buffers())]
        finally:
            self._state.restore()

    def _once(self, call: Any) -> list[Any]:
        try:
            args, kwargs = copy_call(call)
            seed(self._subject, 0)
            return [values_of(t) for t in tensors_of(self._subject.entry(*args, **kwargs))]
        except Exception:
            return []
        finally:
            self._state.restore()

    def _threads(self) -> str:
        """What differs when several threads call at the same time, each with inputs of its own; "" if nothing does."""
        wrong: list[str] = []
        full: list[str] = []
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        start = threading.Barrier(len(self._calls))

        def work(call: Any, expected: list[Any]) -> None:
            try:
                with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                    start.wait(_LONGEST_S)
                    for _ in range(_A_THREAD):
                        args, kwargs = copy_call(call)
                        result = self._subject.entry(*args, **kwargs)
                        if expected and not self._close(expected, [values_of(t) for t in tensors_of(result)]):
                            wrong.append("threads that call at the same time get each other's results")
            except torch.OutOfMemoryError:
                full.append(_NO_ROOM)
            except Exception as error:
                wrong.append(f"a thread of its own gets {type(error).__name__}: {' '.join(str(error).split())[:100]}")

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        pairs = zip(self._calls, self._alone, strict=True)
        threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in pairs]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_LONGEST_S)
        finally:
            sys.setswitchinterval(interval)
            self._subject.wait()
            self._state.restore()
        return [*wrong, *full, ""][0]

    def _original_takes_threads(self, variant: Variant) -> bool:
        with taken_off(variant):
            return self._threads() == ""

    def _copied(self) -> list[Any] | None:
        """What a copy gives while the module itself has other weights; None where it cannot be copied and saved."""
        module: Any = self._subject.module
        if sum(p.numel() for p in self._subject.parameters()) > _MOST_COPIED:
            return None
        try:
            twin = copy.deepcopy(module)
            with exchanged_values(self._subject):
                args, kwargs = copy_call(self._subject.calls[0])
                seed(self._subject, 0)
                outputs = [values_of(t) for t in tensors_of(twin(*args, **kwargs))]
            pickle.dumps(module)
            return outputs
        except Exception:
            return None
        finally:
            self._state.restore()

    def _growth(self) -> int:
        """Tensors that are there after some calls and were not before."""
        self._once(self._subject.calls[0])
        before = _tensors()
        for _ in range(_COUNTED):
            self._once(self._subject.calls[0])
        return _tensors() - before


def _tensors() -> int:
    gc.collect()
    kinds = Counter(map(type, gc.get_objects()))
    return sum(number for kind, number in kinds.items() if issubclass(kind, torch.Tensor))


def leaves_nothing(variant: Variant, state: State) -> list[str]:
    """What is left behind by putting a candidate on and taking it off, which is put back; nothing if all is well."""
    before = settings()
    variant.enable()
    variant.disable()
    left = [*changed_settings(before), *state.differing()]
    put_back(before)
    state.restore()
    return left
