"""Typed rows: the fields of a trace row that lanewise uses, in one struct, whatever the phase or category.

Decoding into structs is what makes reading fast: fields that nobody uses are skipped without creating an object, and a
chunk is checked and typed in one pass of C. The price is strictness. A chunk that does not fit goes through `lenient`,
which takes any JSON object, converts what it can, and counts it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field

from lanewise.trace.dialects import CATEGORIES
from lanewise.trace.reading_losses import Reading

__all__ = [
    "EMPTY_ARGS",
    "Args",
    "CommonRow",
    "Row",
    "WideRow",
    "decode_common_rows",
    "decode_known_rows",
    "decode_rows",
    "decode_wide_rows",
    "lenient",
    "loose_args",
]

_NAN = math.nan


class Args(Struct, gc=False):
    """`args` of a row. -1, NaN and "" mark what is absent.

    The order is Kineto's: the decoder looks ahead from the last field that it found, so writing order is the fast
    order. `_record_function` and `_index` are only there to be found.
    """

    external_id: int = field(default=-1, name="External id")
    _record_function: int = field(default=0, name="Record function id")
    sequence: int = field(default=-1, name="Sequence number")
    forward_thread: int = field(default=-1, name="Fwd thread id")
    concrete: Raw = field(default=Raw(), name="Concrete Inputs")
    types: Raw = field(default=Raw(), name="Input type")
    strides: Raw = field(default=Raw(), name="Input Strides")
    dims: Raw = field(default=Raw(), name="Input Dims")
    python_parent: int | None = field(default=-1, name="Python parent id")
    python_id: int = field(default=-1, name="Python id")
    python_module: int = field(default=-1, name="Python module id")
    _index: int = field(default=0, name="Ev Idx")
    # asked of every row, so close to what else is
    collective: str = field(default="", name="Collective name")
    kernel_hash: str = ""
    kernel_backend: str = ""
    call_stack: str = field(default="", name="Call stack")
    module: str = field(default="", name="Module Hierarchy")
    scope: str = ""
    dims_2021: Raw = field(default=Raw(), name="Input dims")
    cbid: int = -1
    queued: int = -1
    context: int = -1
    correlation: int = -1
    registers: int = field(default=-1, name="registers per thread")
    shared_memory: int = field(default=-1, name="shared memory")
    blocks_per_sm: float = field(default=_NAN, name="blocks per SM")
    warps_per_sm: float = field(default=_NAN, name="warps per SM")
    grid: list[int] | str = field(default="")
    block: list[int] | str = field(default="")
    occupancy: float = field(default=_NAN, name="est. achieved occupancy %")
    bytes: int | str = -1
    bandwidth: float = field(default=_NAN, name="memory bandwidth (GB/s)")
    # allocator events
    memory_bytes: int = field(default=0, name="Bytes")
    address: int = field(default=0, name="Addr")
    allocated: int = field(default=-1, name="Total Allocated")
    reserved: int = field(default=-1, name="Total Reserved")
    device_type: int = field(default=-1, name="Device Type")
    device_id: int = field(default=-1, name="Device Id")
    # rarer parts of kernels and copies; `kind` and `cid` (for `cbid`) are AMD's, `direction` and `size` are MTIA's
    priority: int = -1
    graph_id: int = field(default=-1, name="graph id")
    graph_node_id: int = field(default=-1, name="graph node id")
    cid: int = -1
    kind: str = ""
    direction: str = ""
    size: int | str = -1
    # synchronisation
    sync_kind: str = field(default="", name="cuda_sync_kind")
    wait_on_stream: int = -1
    wait_on_record: int = field(default=-1, name="wait_on_cuda_event_record_corr_id")
    wait_on_event: int = field(default=-1, name="wait_on_cuda_event_id")
    # collectives
    in_elements: int = field(default=-1, name="In msg nelems")
    out_elements: int = field(default=-1, name="Out msg nelems")
    group_size: int = field(default=-1, name="Group size")
    dtype: str = ""
    group: int | str = field(default="", name="Process Group Name")
    group_old: int | str = field(default="", name="Process Group ID")
    description: str = field(default="", name="Process Group Description")
    ranks: Raw = field(default=Raw(), name="Process Group Ranks")
    rank: int = field(default=-1, name="Rank")
    seq: int = field(default=-1, name="Seq")
    asynchronous: bool | int | str = field(default=-1, name="Is asynchronized op")
    # Triton
    kernel_file: str = ""
    num_warps: int = -1
    num_stages: int = -1
    # spellings of 2021
    external_id_2021: int = field(default=-1, name="external id")


class Row(Struct, gc=False):
    """One row of `traceEvents`. A missing time is NaN; any other missing field is empty."""

    ph: str = ""
    id: int | str | float = ""
    cat: str = ""
    name: str = ""
    pid: int | str | float = ""
    tid: int | str | float = ""
    ts: float = _NAN
    dur: float = _NAN
    args: Args | None = None


_PHASES = tuple("XsfMiBEbenICtSTFRNODpPcvV")
_CATEGORIES = ("", *CATEGORIES, "ac2g", "async_cpu_to_gpu", "async_gpu", "async", "fwdbwd")


class KnownRow(Row, gc=False):
    """A row of known phase and category. A literal decodes to one shared text: nothing to create, free or hash anew."""

    ph: Literal[_PHASES] = "X"  # type: ignore[valid-type, assignment]
    cat: Literal[_CATEGORIES] = ""  # type: ignore[valid-type, assignment]


class WideRow(Row, gc=False):
    """A row whose timestamp is kept as digits, for files whose timestamps do not fit a double."""

    ts: Raw = Raw()  # type: ignore[assignment]


EMPTY_ARGS = Args()

_COMMON = (
    *("external_id", "_record_function", "sequence", "forward_thread", "concrete", "types", "strides", "dims"),
    *("python_parent", "python_id", "python_module", "_index", "cbid", "queued", "context", "correlation"),
    *("registers", "shared_memory", "blocks_per_sm", "warps_per_sm", "grid", "block", "occupancy"),
    *("bytes", "bandwidth"),
)


def _common_args() -> type[Struct]:
    """`Args` with the fields of most rows only, refusing any row that has another.

    A third of the size makes decoding a fifth faster. The fields that it lacks are constants of the class, so that both
    can be used alike.
    """
    infos = {info.name: info for info in msgspec.structs.fields(Args)}
    fields = [
        (name, infos[name].type, field(default=infos[name].default, name=infos[name].encode_name)) for name in _COMMON
    ]
    unused = [(f"_{name}", int, field(default=0, name=name)) for name in ("device", "stream")]
    constants = {name: info.default for name, info in infos.items() if name not in _COMMON}
    return msgspec.defstruct(
        "CommonArgs", [*fields, *unused], namespace=constants, forbid_unknown_fields=True, gc=False
    )


_CommonArgs = _common_args()


class CommonRow(KnownRow, gc=False):
    """A row of known phase and category without rare args."""

    args: _CommonArgs | None = None  # type: ignore[valid-type, assignment]


decode_common_rows = msgspec.json.Decoder(list[CommonRow]).decode
"""Decodes a JSON list of rows without rare args; `msgspec.ValidationError` for any other."""

decode_known_rows = msgspec.json.Decoder(list[KnownRow]).decode
"""Strictly decodes a JSON list of rows; raises `msgspec.DecodeError`, `UnicodeDecodeError` or `RecursionError`."""

decode_rows = msgspec.json.Decoder(list[Row]).decode
"""The same with any phase and category."""

decode_wide_rows = msgspec.json.Decoder(list[WideRow]).decode
"""The same with `ts` as `Raw` digits."""


class _Loose(Struct, gc=False):
    args: Raw = Raw()


_decode_loose = msgspec.json.Decoder(list[_Loose]).decode


def loose_args(text: bytes, wanted: list[int]) -> list[dict[str, Any]]:
    """`args` of the rows numbered `wanted`, as plain dictionaries: counters and metadata rows carry any key."""
    rows = _decode_loose(text)
    return [_as_dict(rows[number].args) for number in wanted]


def _as_dict(raw: Raw) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        args = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The typed decoder skips what it does not keep, damaged texts and absurd numbers included.
        args = json.loads(bytes(raw).decode("utf-8", "replace"), strict=False)
    return args if isinstance(args, dict) else {}


# -- any JSON object as a row --------------------------------------------------------------------------------------


class _MisfitError(Exception):
    """A value that has no reading as the type that its field has."""


def lenient(value: Any, reading: Reading) -> Row | None:
    """A row from any decoded JSON value, None if it is not an object. Conversions and losses are counted."""
    if not isinstance(value, dict):
        reading.lose("row is not an object", repr(value))
        return None
    row = Row()
    _fill(row, value, _ROW_FIELDS, reading)
    args = value.get("args")
    if isinstance(args, dict):
        row.args = Args()
        _fill(row.args, args, _ARGS_FIELDS, reading)
    elif args is not None:
        reading.repair("args are not an object", repr(args))
    return row


def _fill(
    target: Row | Args, values: dict[str, Any], fields: dict[str, tuple[str, _Convert]], reading: Reading
) -> None:
    for key, value in values.items():
        known = fields.get(key)
        if known is None or value is None:
            continue
        attribute, convert = known
        try:
            setattr(target, attribute, convert(value))
        except (_MisfitError, ValueError, OverflowError, TypeError):
            reading.repair(f"`{key}` has no usable value", repr(value))
        else:
            if isinstance(value, str) and convert in (_whole, _real):
                reading.repair("number written as text", f"{key}: {value}")


_Convert = Callable[[Any], Any]


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise _MisfitError
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        try:
            return int(text, 16) if text.startswith("0x") else int(text)
        except ValueError:
            value = float(text)
    return int(value)


def _real(value: Any) -> float:
    if isinstance(value, bool):
        raise _MisfitError
    number = float(value)
    if not math.isfinite(number):
        raise _MisfitError
    return number


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _scalar(value: Any) -> int | str | float:
    return value if isinstance(value, int | str | float) else _text(value)


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def _dimensions(value: Any) -> list[int] | str:
    return [_whole(item) for item in value] if isinstance(value, list) else _text(value)


def _converters(struct: type[Struct]) -> dict[str, tuple[str, _Convert]]:
    by_type: dict[Any, _Convert] = {
        int: _whole,
        int | None: _whole,
        float: _real,
        str: _text,
        Raw: _raw,
        list[int] | str: _dimensions,
    }
    return {
        info.encode_name: (info.name, by_type.get(info.type, _scalar))
        for info in msgspec.structs.fields(struct)
        if info.name != "args"
    }


_ROW_FIELDS = _converters(Row)
_ARGS_FIELDS = _converters(Args)
