"""Copies between host and device: shared by SYN103, SYN104, SYN107, SYN108 and SYN109."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.diagnose.select import device_rows
from lanewise.measure.core import remembered
from lanewise.measure.facts import Facts
from lanewise.trace.schema import Kind

__all__ = ["HostCopies", "host_copies"]


class HostCopies(NamedTuple):
    """Copies from or to the host in steady steps whose call is known; one entry per copy.

    Attributes:
        row: row of `Trace.device_work`. event: the device event. call: the call that started it.
        bytes: payload, -1 if unknown. direction: `HtoD` or `DtoH`. pageable: whether ordinary host memory is involved.
    """

    row: np.ndarray
    event: np.ndarray
    call: np.ndarray
    bytes: np.ndarray
    direction: np.ndarray
    pageable: np.ndarray

    def of(self, chosen: np.ndarray) -> HostCopies:
        """Those chosen by a mask."""
        return HostCopies(*(column[chosen] for column in self))


@remembered
def host_copies(facts: Facts) -> HostCopies:
    """All copies between host and device in the steady steps."""
    trace, args = facts.trace, facts.trace["copy_args"]
    row = device_rows(facts, Kind.MEMCPY)
    row = row[trace.links.launch[row] >= 0]
    at = trace.lookup("copy_args", trace.device_work[row])
    row, at = row[at >= 0], at[at >= 0]
    between = np.isin(args["direction"][at], ("HtoD", "DtoH"))
    row, at = row[between], at[between]
    pageable = (args["source"][at] == "pageable") | (args["destination"][at] == "pageable")
    return HostCopies(
        row, trace.device_work[row], trace.links.launch[row], args["bytes"][at], args["direction"][at], pageable
    )
