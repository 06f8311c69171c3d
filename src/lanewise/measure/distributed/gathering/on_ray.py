"""Traces read by a Ray cluster."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from lanewise.errors import MissingDependencyError, UsageError
from lanewise.measure.distributed.gathering.processes import in_order, run_task

__all__ = ["Ray"]

_CONNECT_S = 10.0


class Ray:
    """A cluster that runs at an address, or `auto`; without one, one of this machine, for as long as it reads."""

    def __init__(self, address: str) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError:
            raise MissingDependencyError("reading traces with Ray needs it: pip install 'lanewise[ray]'") from None
        self._address = address

    def each(self, task: str, names: Sequence[str], *, cache: bool) -> Iterator[bytes | None]:
        """See `Executor`. Raises UsageError where the cluster cannot be reached."""
        ray = self._ray
        self._check()
        ours = not ray.is_initialized()
        if ours:
            given = {"address": self._address} if self._address else {"include_dashboard": False}
            try:
                ray.init(log_to_driver=False, logging_level="ERROR", **given)
            except Exception as error:  # Ray has no exception of its own for this
                raise UsageError(f"no Ray cluster at {self._address or 'this machine'}: {error}") from None
        try:
            # What reads one trace after another may end for lack of memory: once more, then it is that trace's.
            run = ray.remote(num_cpus=1, max_retries=1)(run_task)
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            for one in in_order(names, cores, lambda name: run.remote(task, name, cache)):
                yield self._answer(one)
        finally:
            if ours:
                ray.shutdown()

    def _check(self) -> None:
        """Whether anybody listens at the address: Ray itself tries for minutes."""
        host, _, port = self._address.rpartition("://")[2].rpartition(":")
        if not host or not port.isdigit():
            return
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
        except OSError as error:
            raise UsageError(f"no Ray cluster at {self._address}: {error.strerror or error}") from None

    def _answer(self, submitted: Any) -> bytes | None:
        try:
            return self._ray.get(submitted)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError:
            return None
