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
from types import CodeType, FrameType
from typing import Any, Protocol, cast

from lanewise.capture.boundaries.import_hooks import ImportWatch
from lanewise.capture.boundaries.module_names import SeenModules
from lanewise.capture.lazy_torch import torch_part
from lanewise.capture.thread_identity import ThreadMark, this_thread

__all__ = ["ForwardSteps", "OptimizerSteps", "Source", "being_compiled", "never_compiled"]

Found = Callable[["Source"], None]

_MOST_SEEN = 4096
"""Modules that are remembered as called once."""


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
        if being_compiled():
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

    One hook that all modules share sees the calls; nothing hangs on a module, so that copies, pickles, scripts and
    exports of it are what they are without us. The hook is away while an outermost module runs: what runs inside costs
    nothing, and is never taken for an outermost one. It is gone before a function is compiled, because torch.compile
    would compile it in, and before a compiled module is entered, because that warns of it.

    Attributes:
        seen: the outermost modules, whether or not they make steps.
    """

    name = "forward"

    def __init__(self, found: Found) -> None:
        self.label = ""
        self.seen = SeenModules()
        self._found = found
        self._hook: Any = None
        self._once: dict[int, weakref.ref[Any]] = {}
        self._module: weakref.ref[Any] | None = None
        self._inside: weakref.ref[_Call] | None = None
        self._home: weakref.ref[ThreadMark] | None = None
        self._active = False
        self._compiled = False
        self._call_code: Any = None
        self._optimized_call: Any = None
        self._watches = (
            ImportWatch("torch._dynamo.callback", self._watch_compiler),
            ImportWatch("torch._dynamo.eval_frame", self._look_at_compiled),
        )

    def install(self) -> None:
        """Look at every outermost module call."""
        never_compiled(ForwardSteps._called, ForwardSteps._entered)
        module = torch_part("torch.nn").Module
        self._call_code = getattr(module.__call__, "__code__", None)
        self._active = True
        self._look()
        for watch in self._watches:
            watch.install()

    def look_only_at(self, module: Any) -> None:
        """In place of `install`: only calls of this module matter."""
        self._module, self.label, self._active = weakref.ref(module), _kind(module), True
        self._look()

    def uninstall(self) -> None:
        """Remove the hook."""
        self._active = False
        for watch in self._watches:
            watch.uninstall()
        self._look_away()
        original, self._optimized_call = self._optimized_call, None
        if original is not None:
            sys.modules["torch._dynamo.eval_frame"].OptimizedModule.__call__ = original
        handler = _callback_handler()
        if handler is not None and self._compile_starts in handler.start_callbacks:
            # Replaced rather than shortened: the list may be under iteration, and a removal would skip the next entry.
            handler.start_callbacks = [c for c in handler.start_callbacks if c != self._compile_starts]

    def _look(self) -> None:
        if self._hook is None and self._active and not self._compiled:
            self._hook = torch_part("torch.nn.modules.module").register_module_forward_pre_hook(self._called)

    def _look_away(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def _look_at_compiled(self) -> None:
        """Calls of compiled modules are seen where they are looked up: no frame of ours is in their way."""
        eval_frame: Any = sys.modules.get("torch._dynamo.eval_frame")
        if eval_frame is not None and self._active and self._optimized_call is None:
            self._optimized_call = eval_frame.OptimizedModule.__call__
            eval_frame.OptimizedModule.__call__ = _LookedUp(self._optimized_call, self._compiled_called)

    def _called(self, module: Any, args: Any) -> None:
        """A module is called, and this is one of its pre-hooks."""
        if self._hook is None or being_compiled():
            return
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if not _is_nested(frame, self._call_code):
            self._entered(module, frame)

    def _compiled_called(self, module: Any) -> None:
        if being_compiled() or (self._inside is not None and self._inside() is not None):
            return
        self._look_away()
        self._entered(module, None)

    def _entered(self, module: Any, frame: FrameType | None) -> None:
        """An outermost module is called."""
        makes_steps = self._module is not None and self._module() is module
        if self._module is None:
            self.seen.add(module)
            makes_steps = self._is_second(module)
        home = this_thread()
        if frame is not None and module._modules and (self._home is None or self._home() in (None, home)):
            self._home = weakref.ref(home)
            self._look_away_until_it_returns(frame)
        if makes_steps:
            self._found(self)

    def _is_second(self, module: Any) -> bool:
        known = self._once.get(id(module))
        if known is None or known() is not module:
            if len(self._once) >= _MOST_SEEN:
                self._once.clear()
            self._once[id(module)] = weakref.ref(module)
            return False
        self._once.clear()
        self._module = weakref.ref(module)
        self.label = _kind(module)
        return True

    def _look_away_until_it_returns(self, frame: FrameType) -> None:
        """Takes the hook away, and has it come back with the end of the call.

        torch keeps a set in the frame of the call, of hooks that it has run. What is put there is gone with the frame,
        however the call ends. Where this torch has no such set the hook stays, which costs the modules inside a little.
        """
        kept = frame.f_locals.get("called_always_called_hooks")
        if isinstance(kept, set):
            call = _Call()
            cast("set[Any]", kept).add(call)
            self._inside = weakref.ref(call, lambda _: self._look())
            self._look_away()

    def _watch_compiler(self) -> None:
        handler = _callback_handler()
        if handler is None:
            self._compile_starts()
        elif self._active:
            handler.register_start_callback(self._compile_starts)

    def _compile_starts(self, *_: Any) -> None:
        """Something is compiled. Inside of a module the hook is away, and comes back; elsewhere it is gone for good."""
        if self._inside is None or self._inside() is None:
            self._compiled = True
        self._look_away()


class _Call:
    """Lives as long as one call of an outermost module."""

    __slots__ = ("__weakref__",)


class _LookedUp:
    """A method that tells of every instance it is looked up on, and is itself in every other respect."""

    def __init__(self, original: Any, tell: Callable[[Any], None]) -> None:
        self._original = original
        self._tell = tell

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is not None:
            with contextlib.suppress(Exception):
                self._tell(instance)
        return self._original.__get__(instance, owner)


def _is_nested(frame: FrameType, call: CodeType | None) -> bool:
    """Whether a module's call around that which `frame` belongs to is still running."""
    around: FrameType | None = frame
    found = 0
    while around is not None and found < 2:
        found += around.f_code is call
        around = around.f_back
    return found > 1


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


def being_compiled() -> bool:
    """Whether what runs now is being traced or compiled: nothing of ours may be written down with it."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return False
    asked = getattr(torch.compiler, "is_compiling", None)
    return bool(asked and asked()) or torch._C._get_tracing_state() is not None


def _callback_handler() -> Any:
    module: Any = sys.modules.get("torch._dynamo.callback")
    return getattr(module, "callback_handler", None)


def _ignore(_: Any) -> None:
    return None
