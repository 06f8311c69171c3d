"""What reads the traces of a job: processes of this machine, or a Ray or Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from lanewise.errors import UsageError

__all__ = ["WAYS", "Executor", "executor_for"]

WAYS = ("processes", "ray", "dask")


class Executor(Protocol):
    """Does a task with each of many traces."""

    def each(self, task: str, names: Sequence[str], *, cache: bool) -> Iterator[bytes | None]:
        """The answers in the order of the names.

        Args:
            task: `module:function` of a function from a name, and whether copies are kept, to bytes.
            names: what the traces are called where the task runs.
            cache: handed to the task.

        Returns:
            What the task said, None where what it ran in ended.
        """
        ...


def executor_for(way: str) -> Executor:
    """The executor of a name: `processes`, `ray` or `dask`, with `=ADDRESS` for a cluster that runs already.

    Raises:
        UsageError: no such way, or the cluster cannot be reached. MissingDependencyError: its package is not installed.
    """
    name, _, address = way.partition("=")
    if name == "processes" and (not address or (address.isdecimal() and int(address))):
        from lanewise.measure.distributed.gathering.processes import Processes

        return Processes(int(address) if address else os.cpu_count() or 1)
    if name == "ray":
        from lanewise.measure.distributed.gathering.on_ray import Ray

        return Ray(address)
    if name == "dask":
        from lanewise.measure.distributed.gathering.on_dask import Dask

        return Dask(address)
    raise UsageError(
        f"{way!r} is no place to read traces: {', '.join(WAYS)}, or with a number or an address: "
        "processes=8, dask=tcp://HOST:8786"
    )
