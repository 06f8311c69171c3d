"""Finds step boundaries in a program that knows nothing of them.

Training: an optimizer has stepped. Inference: the outermost module is called again. Otherwise: a named function is
entered, or the program says so itself. Whatever is installed for this is removed by `uninstall`, and none of it raises
into the program.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from lanewise.capture.boundaries.import_hooks import ImportWatch
from lanewise.capture.boundaries.module_names import SeenModules
from lanewise.capture.lazy_torch import torch_part

__all__ = ["ForwardSteps", "OptimizerSteps", "Source", "never_compiled"]

Found = Callable[["Source"], None]


class Source(Protocol):
    """One way to find boundaries.

    Attributes:
        name: as in `Recorded.step_source`. label: what it found, once it found something.
    """

    name: str
    label: str

    def install(self) -> None:
        """Begin to look; torch is loaded."""
        ...

    def uninstall(self) -> None:
        """Leave no trace in the program; may be called from inside one of the source's own hooks, and twice."""
        ...


class OptimizerSteps:
    """A boundary after every step of one optimizer: the first that the program steps.

    Programs with several (a GAN, an optimizer per layer) step them all once per iteration, so one of them is enough.
    Should the first never step again, the next that does takes its place.

    The hook runs inside torch's own `Optimizer.step#...` annotation. While rows are kept, the boundary waits for that
    one's end: step marks would cross it otherwise, and what the recorder does would count for the optimizer.

    Args:
        found: is told of every boundary.
        attached: whether a profiler of ours is attached now.
    """

    name = "optimizer"

    def __init__(self, found: Found, attached: Callable[[], bool] = lambda: False) -> None:
        self.label = ""
        self._found = found
        self._attached = attached
        self._exit: Any = None
        self._due = False
        self._handle: Any = None
        self._anchor: weakref.ref[Any] | None = None
        self._others = 0

    def install(self) -> None:
        """Register a hook that all optimizers share."""
        optimizer = torch_part("torch.optim.optimizer")
        never_compiled(OptimizerSteps._stepped)
        self._handle = optimizer.register_optimizer_step_post_hook(self._stepped)

    def uninstall(self) -> None:
        """Remove the hook.

        torch iterates over the dictionary of hooks while it calls them, so that ours must not be deleted from inside.
        When it is the only one, a new, empty dictionary takes the place of the old; else it stays, inert, until the
        end.
        """
        self._unwatch()
        handle, self._handle = self._handle, None
        if handle is None:
            return
        optimizer = torch_part("torch.optim.optimizer")
        hooks: Any = getattr(optimizer, "_global_optimizer_post_hooks", None)
        if isinstance(hooks, dict) and len(hooks) == 1 and handle.id in hooks:
            optimizer._global_optimizer_post_hooks = OrderedDict()
        else:
            self._handle = handle
            self._found = _ignore

    def remove_late(self) -> None:
        """Remove what `uninstall` had to leave; call it outside of any optimizer step."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if _compiling():
            return
        anchor = self._anchor() if self._anchor is not None else None
        if anchor is not optimizer:
            self._others += 1
            if anchor is not None and self._others < 1000:
                return
            self._anchor = weakref.ref(optimizer)
            self.label = type(optimizer).__name__
        self._others = 0
        if self._exit is not None and not self._due:
            self._due = True
            return
        self._due = False
        self._found(self)
        if self._exit is None and self._attached():
            self._watch()

    def _watch(self) -> None:
        """From the next step on, a boundary comes when the annotation around the optimizer's step has ended."""
        annotation = torch_part("torch.autograd.profiler").record_function
        original = self._exit = annotation.__exit__

        @functools.wraps(original)
        def ended(this: Any, *exception: Any) -> Any:
            result = original(this, *exception)
            if self._due and str(this.name).startswith("Optimizer.step#"):
                self._due = False
                self._found(self)
            return result

        never_compiled(ended)
        annotation.__exit__ = ended

    def _unwatch(self) -> None:
        original, self._exit, self._due = self._exit, None, False
        if original is not None:
            torch_part("torch.autograd.profiler").record_function.__exit__ = original


class ForwardSteps:
    """A boundary before every call of one outermost module: the first that is called a second time.

    Hooks on all modules are in place only between outermost calls and only until that module is known; then it carries
    one of its own. They are gone before anything is compiled, because torch.compile would compile them in, and before a
    compiled module is entered, because that warns of them.

    Attributes:
        seen: the outermost modules, whether or not they make steps.
    """

    name = "forward"

    def __init__(self, found: Found) -> None:
        self.label = ""
        self.seen = SeenModules()
        self._found = found
        self._global: Any = None
        self._candidates: dict[int, _Candidate] = {}
        self._inside = 0
        self._outermost: _Candidate | None = None
        self._compiled = False
        self._active = False
        self._optimized_call: Any = None
        self._watches = (
            ImportWatch("torch._dynamo.callback", self._watch_compiler),
            ImportWatch("torch._dynamo.eval_frame", self._look_at_compiled),
        )

    def install(self) -> None:
        """Look at every outermost module call."""
        never_compiled(ForwardSteps._called, _Hook.__call__)
        self._active = True
        self._look()
        for watch in self._watches:
            watch.install()

    def look_only_at(self, module: Any) -> None:
        """In place of `install`: only calls of this module matter."""
        self._outermost_found(module)

    def uninstall(self) -> None:
        """Remove every hook."""
        self._active = False
        for watch in self._watches:
            watch.uninstall()
        self._look_away()
        for candidate in self._candidates.values():
            candidate.remove()
        self._candidates.clear()
        handler = _callback_handler()
        if handler is not None and self._compile_starts in handler.start_callbacks:
            # Replaced rather than shortened: the list may be under iteration, and a removal would skip the next entry.
            handler.start_callbacks = [c for c in handler.start_callbacks if c != self._compile_starts]

    def _look(self) -> None:
        if self._global is None and self._active and not self._compiled and not self._inside:
            self._global = torch_part("torch.nn.modules.module").register_module_forward_pre_hook(self._called)
            self._look_at_compiled()

    def _look_at_compiled(self) -> None:
        eval_frame: Any = sys.modules.get("torch._dynamo.eval_frame")
        if eval_frame is None or self._global is None or self._optimized_call is not None:
            return
        original = self._optimized_call = eval_frame.OptimizedModule.__call__

        @functools.wraps(original)
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not _compiling():
                with contextlib.suppress(Exception):
                    self._outermost_found(module)
            return original(module, *args, **kwargs)

        never_compiled(called)
        eval_frame.OptimizedModule.__call__ = called

    def _look_away(self) -> None:
        if self._global is not None:
            self._global.remove()
            self._global = None
        original, self._optimized_call = self._optimized_call, None
        if original is not None:
            sys.modules["torch._dynamo.eval_frame"].OptimizedModule.__call__ = original

    def _called(self, module: Any, args: Any) -> None:
        """An outermost module is called, and this is one of its pre-hooks."""
        if not _compiling() and (candidate := self._outermost_found(module)) is not None:
            # The hooks to call were collected before this one ran, so that the call is entered by hand.
            candidate.entered(module, args)

    def _outermost_found(self, module: Any) -> _Candidate | None:
        """Gives a module that is seen for the first time hooks of its own, if it takes any."""
        if id(module) in self._candidates:
            return None
        try:
            candidate = _Candidate(module, self)
        except RuntimeError:  # TorchScript takes no hooks
            return None
        self._candidates[id(module)] = candidate
        self._look_away()
        self.seen.add(module)
        return candidate

    def entered(self, candidate: _Candidate) -> None:
        """A known module is called."""
        self._look_away()
        self._inside += 1
        candidate.running += 1
        if self._inside > 1:
            return
        self._outermost = candidate
        candidate.calls += 1
        if candidate.calls == 2 and not self.label:
            self.label = candidate.kind
            for other in [c for c in self._candidates.values() if c is not candidate]:
                other.remove()
            candidate.settle(lambda: self._found(self))
            self._found(self)

    def left(self, candidate: _Candidate) -> None:
        """A known module returned or raised."""
        self._inside = max(0, self._inside - 1)
        candidate.running = max(0, candidate.running - 1)
        if not self._inside:
            self._outermost = None
        if not self.label:
            self._look()

    def _watch_compiler(self) -> None:
        handler = _callback_handler()
        if handler is None:
            self._compile_starts()
        elif self._active:
            handler.register_start_callback(self._compile_starts)

    def _compile_starts(self, *_: Any) -> None:
        """Take away every hook that the compiler may meet: all but those of the module around what it compiles."""
        self._compiled = True
        self._look_away()
        for key, candidate in list(self._candidates.items()):
            if candidate is not self._outermost:
                # It may be running inside the outermost one, and will not say any more that it returned.
                self._inside -= candidate.running
                candidate.remove()
                del self._candidates[key]


class _Candidate:
    """One module's own pair of hooks."""

    def __init__(self, module: Any, source: ForwardSteps) -> None:
        self.kind = _kind(module)
        self.calls = 0
        self.running = 0
        self._source: ForwardSteps | None = source
        self._settled: Callable[[], None] | None = None
        self._handles = [
            module.register_forward_pre_hook(_Hook(self.entered)),
            module.register_forward_hook(_Hook(self.left), always_call=True),
        ]

    def settle(self, called: Callable[[], None]) -> None:
        """This is the module that makes steps: from now on only its calls matter, and they cost one hook."""
        self._settled = called
        self._handles.pop().remove()

    def entered(self, module: Any, args: Any) -> None:
        """The module is called."""
        if self._source is None or _compiling():
            return
        if self._settled is not None:
            self._settled()
        else:
            self._source.entered(self)

    def left(self, module: Any, args: Any, output: Any) -> None:
        """The module returned."""
        if self._source is not None and not _compiling():
            self._source.left(self)

    def remove(self) -> None:
        """Take the hooks off the module."""
        self._source = None
        for handle in self._handles:
            handle.remove()
        self._handles = []


class _Hook:
    """A hook that does not travel: a copy or a pickle of its module holds an inert method instead."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


def _kind(module: Any) -> str:
    return type(getattr(module, "_orig_mod", module)).__name__


def never_compiled(*functions: Any) -> None:
    """Tells torch.compile to leave our functions and what they call alone, where this torch can be told.

    A hook that runs between two compiled graphs would otherwise be looked at, frame by frame.
    """
    try:
        eval_frame: Any = torch_part("torch._C._dynamo.eval_frame")
        skip = eval_frame._FrameAction.SKIP
        for function in functions:
            eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    except (ImportError, AttributeError, TypeError):
        return


def _compiling() -> bool:
    torch: Any = sys.modules["torch"]
    asked = getattr(torch.compiler, "is_compiling", None)
    return bool(asked and asked())


def _callback_handler() -> Any:
    module: Any = sys.modules.get("torch._dynamo.callback")
    return getattr(module, "callback_handler", None)


def _ignore(_: Any) -> None:
    return None
