"""Columns of evidence that several tables show: key, unit and heading, each declared once.

Times are ns, rates per second, shares 0 to 1. A column that one table shows is declared where the table is.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from lanewise.report.model import TableColumn

__all__ = [
    "ANNOTATION", "ANNOTATION_DURATION", "ANNOTATION_START", "BLOCKS", "BUSY", "BYTES", "CALL", "CALLS", "CAUSE",
    "COPIES", "COUNT", "DEVICE", "DEVICE_TOTAL", "DIRECTION", "DTYPE", "DURATION", "FIRST_DISPATCH", "FLOP_RATE",
    "FUNCTION", "GROUP", "HOST", "HOST_SELF", "HOST_TOTAL", "INSIDE", "KERNEL", "KERNELS", "KIND", "LAUNCHES",
    "LINE", "LONGEST", "MAX", "MEDIAN", "MINE", "MODULE", "MORE", "NAME", "NODE", "NUMBER", "OPERATOR", "OPERATORS",
    "OTHERS", "PERIOD", "RANK", "RANKS", "ROW", "SHAPES", "SHARE", "SITE", "START", "STEP", "TIME", "TOTAL",
    "VALUE", "WAIT", "WAITING", "WHAT", "WHERE", "Headings", "headed",
]  # fmt: skip

ANNOTATION = TableColumn("annotation", "text", "annotation")
ANNOTATION_DURATION = TableColumn("annotation_duration", "time", "annotation lasts")
ANNOTATION_START = TableColumn("annotation_start", "time", "annotation starts")
BLOCKS = TableColumn("blocks", "count", "blocks")
BUSY = TableColumn("busy", "time", "device busy")
BYTES = TableColumn("bytes", "bytes", "bytes")
CALL = TableColumn("call", "text", "call")
CALLS = TableColumn("calls", "count", "per step")
CAUSE = TableColumn("cause", "text", "cause")
COPIES = TableColumn("copies", "count", "copies")
COUNT = TableColumn("count", "count", "per step")
DEVICE = TableColumn("device", "time", "device time")
DEVICE_TOTAL = TableColumn("device_total", "time", "device total")
DIRECTION = TableColumn("direction", "text", "direction")
DTYPE = TableColumn("dtype", "text", "type")
DURATION = TableColumn("duration", "time", "mean")
FIRST_DISPATCH = TableColumn("first_dispatch", "time", "first operator")
FLOP_RATE = TableColumn("flop_rate", "flop_rate", "computes")
FUNCTION = TableColumn("function", "text", "function")
GROUP = TableColumn("group", "text", "group")
HOST = TableColumn("host", "time", "host time")
HOST_SELF = TableColumn("host_self", "time", "host self")
HOST_TOTAL = TableColumn("host_total", "time", "host total")
INSIDE = TableColumn("inside", "text", "inside")
KERNEL = TableColumn("kernel", "text", "kernel")
KERNELS = TableColumn("kernels", "count", "kernels")
KIND = TableColumn("kind", "text", "kind")
LAUNCHES = TableColumn("launches", "count", "launches")
LINE = TableColumn("line", "text", "source line")
LONGEST = TableColumn("longest", "time", "longest")
MAX = TableColumn("max", "time", "max")
MEDIAN = TableColumn("median", "time", "median")
MINE = TableColumn("mine", "time", "this rank")
MODULE = TableColumn("module", "text", "module")
MORE = TableColumn("more", "time", "more")
NAME = TableColumn("name", "text", "kernel")
NODE = TableColumn("node", "text", "node")
NUMBER = TableColumn("number", "text", "step")
OPERATOR = TableColumn("operator", "text", "operator")
OPERATORS = TableColumn("operators", "count", "operators")
OTHERS = TableColumn("others", "time", "the others")
PERIOD = TableColumn("period", "time", "takes")
RANK = TableColumn("rank", "text", "rank")
RANKS = TableColumn("ranks", "text", "ranks")
ROW = TableColumn("row", "text", "row")
SHAPES = TableColumn("shapes", "text", "shapes")
SHARE = TableColumn("share", "share", "share")
SITE = TableColumn("site", "text", "called by")
START = TableColumn("start", "time", "start")
STEP = TableColumn("step", "count", "step")
TIME = TableColumn("time", "time", "time")
TOTAL = TableColumn("total", "time", "host time")
VALUE = TableColumn("value", "text", "value")
WAIT = TableColumn("wait", "time", "of it waiting")
WAITING = TableColumn("waiting", "time", "waiting")
WHAT = TableColumn("what", "text", "what")
WHERE = TableColumn("where", "text", "where")


Headings = Sequence[TableColumn]
"""The columns of a table in their order."""


def headed(column: TableColumn, label: str) -> TableColumn:
    """The column under another heading: what its number refers to in one table."""
    return structs.replace(column, label=label)
