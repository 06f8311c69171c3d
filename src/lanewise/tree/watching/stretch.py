"""What a running program did between two looks at its tree, as a tree of its own."""

from __future__ import annotations

from dataclasses import replace

from lanewise.tree.algebra import subtract
from lanewise.tree.model import Tree
from lanewise.tree.watching.watched import Watched

__all__ = ["stretch"]


def stretch(now: Tree, before: Tree) -> Tree:
    """The later tree without what the earlier one of the same collection has.

    The shortest and longest of a context are those of the whole run.
    """
    new, old = now.info, before.info
    return subtract(now, before).with_info(
        filters=new.filters,
        unlinked=new.unlinked - old.unlinked,
        backward=new.backward - old.backward,
        linked=new.linked - old.linked,
        accumulated=new.accumulated - old.accumulated,
        watched=_between(new.watched, old.watched) if new.watched is not None and old.watched is not None else None,
    )


def _between(new: Watched, old: Watched) -> Watched:
    losses = {name: number - old.losses.get(name, 0) for name, number in new.losses.items()}
    return replace(
        new,
        steps_seen=new.steps_seen - old.steps_seen,
        steps_watched=new.steps_watched - old.steps_watched,
        start_up_steps=new.start_up_steps - old.start_up_steps,
        seconds=new.seconds - old.seconds,
        callbacks=new.callbacks - old.callbacks,
        losses={name: number for name, number in losses.items() if number},
        joules=new.joules - old.joules,
        joule_steps=new.joule_steps - old.joule_steps,
        joule_seconds=new.joule_seconds - old.joule_seconds,
        # Of the run as a whole they say how sure its shares are, and how it went.
        sampling_error=-1.0,
        slowdowns=tuple(found for found in new.slowdowns if found not in old.slowdowns),
        history=(),
    )
