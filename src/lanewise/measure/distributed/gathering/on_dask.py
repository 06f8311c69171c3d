"""Traces read by a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from lanewise.errors import MissingDependencyError, UsageError
from lanewise.measure.distributed.gathering.processes import in_order, run_task

__all__ = ["Dask"]

_CONNECT = "15s"


class Dask:
    """A cluster whose scheduler is at an address; without one, one of this machine, for as long as it reads."""

    def __init__(self, address: str) -> None:
        try:
            self._distributed: Any = importlib.import_module("distributed")
        except ImportError:
            raise MissingDependencyError("reading traces with Dask needs it: pip install 'lanewise[dask]'") from None
        self._address = address

    def each(self, task: str, names: Sequence[str], *, cache: bool) -> Iterator[bytes | None]:
        """See `Executor`. Raises UsageError where the cluster cannot be reached."""
        with self._client() as client:
            threads = max(1, sum(client.nthreads().values()))
            for one in in_order(
                names, threads, lambda name: client.submit(run_task, task, name, cache, pure=False, retries=1)
            ):
                yield self._answer(one)

    def _client(self) -> Any:
        if not self._address:
            # One trace in memory for each process.
            return self._distributed.Client(threads_per_worker=1, dashboard_address=None)
        try:
            return self._distributed.Client(self._address, timeout=_CONNECT)
        except OSError as error:
            raise UsageError(f"no Dask scheduler at {self._address}: {error}") from None

    def _answer(self, submitted: Any) -> bytes | None:
        try:
            return submitted.result()
        except self._distributed.scheduler.KilledWorker:
            return None
