"""Whether a call reaches the original program through all that was put on it: then it is what the original makes of it, and
nothing need be computed to know that it is right.

A program with hundreds of convolutions takes seconds for every new shape and type, as a library first looks for the
kernels: most of what checking a CUDA graph took was the original, in situations in which the graph hands over to it.
"""

from __future__ import annotations

from typing import Any, NoReturn

from lanewise.fix.candidates.candidate import Several, Variant
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, copy_call

__all__ = ["passed_on"]


class _Reached(BaseException):
    """The original was called. No `Exception`: nothing on the way may take it for an error of the program."""


def passed_on(subject: Subject, variant: Variant, call: Call) -> bool:
    """Whether a call of the program with the variant in place ends in the original's implementation, untouched.

    False also where that cannot be told: of a variant that is more than patches of the whole program, or if anything is
    raised on the way. The program's state may have to be put back afterwards.
    """
    patches = _patches(variant)
    if not patches or any(patch.target is not subject.entry for patch in patches):
        return False
    stand_ins = [patch.dispatch for patch in patches]
    lowest = next(one for one in stand_ins if one.original not in stand_ins)
    args, kwargs = copy_call(call)
    original, lowest.original = lowest.original, _reached
    try:
        subject.entry(*args, **kwargs)
    except _Reached:
        return True
    except Exception:
        return False
    finally:
        lowest.original = original
    return False


def _reached(*args: Any, **kwargs: Any) -> NoReturn:
    raise _Reached


def _patches(variant: Any) -> list[ForwardPatch]:
    """The patches that a variant consists of; none if it is anything else besides."""
    if isinstance(variant, ForwardPatch):
        return [variant]
    if not isinstance(variant, Several):
        return []
    parts = [_patches(part) for part in variant.parts]
    return [patch for part in parts for patch in part] if all(parts) else []
