"""Old and new Kineto, AMD, XPU and MTIA spellings mapped to one vocabulary.

Three tables: categories to (kind, side), API names to roles, copy names to (direction, source, destination). Everything
here reads names only; nothing is decided by process or thread id (trace-format sections 3, 4 and 8).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from lanewise.trace.schema import Kind

__all__ = [
    "API_ROLES",
    "CATEGORIES",
    "ROLES",
    "Category",
    "Copy",
    "annotation_in_disguise",
    "api_role",
    "classify",
    "copy_blocks",
    "copy_of",
    "generation_of",
    "mtia_device_kind",
]

HOST, DEVICE, NEITHER = "host", "device", "none"


class Category(NamedTuple):
    """What one category of rows is in lanewise's words."""

    kind: int
    side: str


CATEGORIES: dict[str, Category] = {
    # Kineto since 2022
    "cpu_op": Category(Kind.OPERATOR, HOST),
    "user_annotation": Category(Kind.ANNOTATION, HOST),
    "gpu_user_annotation": Category(Kind.GPU_ANNOTATION, DEVICE),
    "python_function": Category(Kind.PYTHON, HOST),
    "cuda_runtime": Category(Kind.RUNTIME, HOST),
    "cuda_driver": Category(Kind.DRIVER, HOST),
    "kernel": Category(Kind.KERNEL, DEVICE),
    "gpu_memcpy": Category(Kind.MEMCPY, DEVICE),
    "gpu_memset": Category(Kind.MEMSET, DEVICE),
    "cuda_sync": Category(Kind.SYNC, DEVICE),
    "cuda_event": Category(Kind.SYNC, DEVICE),
    "cpu_instant_event": Category(Kind.COUNTER, HOST),
    "overhead": Category(Kind.OVERHEAD, NEITHER),
    "cuda_profiler_range": Category(Kind.OTHER, DEVICE),
    "Trace": Category(Kind.OTHER, NEITHER),
    # Kineto of 2021; user annotations hide among its operators, see `annotation_in_disguise`
    "Operator": Category(Kind.OPERATOR, HOST),
    "Runtime": Category(Kind.RUNTIME, HOST),
    "Kernel": Category(Kind.KERNEL, DEVICE),
    "Memcpy": Category(Kind.MEMCPY, DEVICE),
    "Memset": Category(Kind.MEMSET, DEVICE),
    # Meta MTIA; the device side mixes kernels, copies and waits, see `mtia_device_kind`
    "mtia_runtime": Category(Kind.RUNTIME, HOST),
    "mtia_ccp_events": Category(Kind.KERNEL, DEVICE),
    "mtia_insight": Category(Kind.COUNTER, DEVICE),
    "mtia_counters": Category(Kind.COUNTER, DEVICE),
    # Intel XPU; device rows use kernel, gpu_memcpy and gpu_memset
    "xpu_runtime": Category(Kind.RUNTIME, HOST),
    "xpu_driver": Category(Kind.DRIVER, HOST),
    "xpu_sync": Category(Kind.SYNC, DEVICE),
    "xpu_scope_profiler": Category(Kind.COUNTER, DEVICE),
    # Back ends outside of torch: their calls have names of their own, see `_role_in`
    "privateuse1_runtime": Category(Kind.RUNTIME, HOST),
    "privateuse1_driver": Category(Kind.DRIVER, HOST),
    "glow_runtime": Category(Kind.RUNTIME, HOST),
    # kept and shown, not analysed
    "hpu_op": Category(Kind.OTHER, HOST),
    "collective_comm": Category(Kind.OTHER, HOST),
    "hardware_counters": Category(Kind.OTHER, NEITHER),
}

_UNKNOWN = Category(Kind.OTHER, HOST)


def classify(category: str) -> tuple[Category, bool]:
    """Kind and side of a category, and whether it is a known one. Unknown ones are `other` on the host."""
    found = CATEGORIES.get(category)
    return (found, True) if found is not None else (_UNKNOWN, False)


def annotation_in_disguise(name: str) -> bool:
    """Whether a row that the 2021 schema calls an operator is a `record_function` range of the profiler or of torch."""
    return name.startswith(("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "DistributedDataParallel."))


def mtia_device_kind(name: str) -> int:
    """Kind of an `mtia_ccp_events` row."""
    if name.startswith("dma"):
        return Kind.MEMCPY
    if name.startswith("event_"):
        return Kind.SYNC
    return Kind.KERNEL


def generation_of(categories: set[str], flow_categories: set[str], has_base_time: bool) -> str:
    """Schema generation, detected by spelling and never by version (trace-format section 2); "" if no row tells."""
    if categories & {"Operator", "Runtime", "Kernel", "Memcpy", "Memset"}:
        return "2021"
    if has_base_time:
        return "2024"
    if categories & CATEGORIES.keys() or flow_categories & {"ac2g", "async_cpu_to_gpu"}:
        return "2022"
    return ""


# -- API calls by role (trace-format section 8) ------------------------------------------------------------------------

ROLES: tuple[str, ...] = (
    "launch",
    "graph_launch",
    "graph_build",
    "copy",
    "set",
    "wait",
    "poll",
    "order",
    "query",
    "allocate",
    "free",
    "other",
)

# Names after `_vNNNN`, `_ptsz` and `_ptds` are taken off. A trailing `*` matches any ending. Longer names win.
# A blocking `cudaMemcpy` is a copy: whether it waited is a matter of its time, not of its name.
API_ROLES: dict[str, tuple[str, ...]] = {
    "launch": (
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaLaunchCooperativeKernel",
        "cudaLaunchCooperativeKernelMultiDevice",
        "cudaLaunchHostFunc",
        "cudaLaunch",
        "cuLaunch",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchCooperativeKernel",
        "cuLaunchCooperativeKernelMultiDevice",
        "cuLaunchGrid*",
        "hipLaunchKernel",
        "hipLaunchKernelExC",
        "hipExtLaunchKernel",
        "hipExtLaunchMultiKernelMultiDevice",
        "hipModuleLaunchKernel",
        "hipModuleLaunchCooperativeKernel*",
        "hipDrvLaunchKernelEx",
        "hipExtModuleLaunchKernel",
        "hipHccModuleLaunchKernel",
        "hipLaunchCooperativeKernel",
        "hipLaunchCooperativeKernelMultiDevice",
        "hipLaunchByPtr",
        "urEnqueueKernelLaunch*",
        "urEnqueueCooperativeKernelLaunch*",
        "piEnqueueKernelLaunch",
        "zeCommandListAppendLaunch*",
        "runFunction*",
    ),
    "graph_launch": ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch", "urCommandBufferEnqueue*"),
    "graph_build": (
        "cudaStreamBeginCapture*",
        "cudaStreamEndCapture",
        "cudaStreamUpdateCaptureDependencies*",
        "cudaGraph*",
        "cuStreamBeginCapture*",
        "cuStreamEndCapture",
        "cuGraph*",
        "hipStreamBeginCapture*",
        "hipStreamEndCapture",
        "hipStreamUpdateCaptureDependencies*",
        "hipGraph*",
        "urCommandBuffer*",
    ),
    "copy": (
        "cudaMemcpy*",
        "cudaMemPrefetchAsync",
        "cuMemcpy*",
        "cuMemPrefetchAsync",
        "hipMemcpy*",
        "hipMemPrefetchAsync",
        "urEnqueueUSMMemcpy*",
        "urEnqueueMemBuffer*",
        "urEnqueueUSMPrefetch",
        "piextUSMEnqueueMemcpy",
        "zeCommandListAppendMemoryCopy*",
        "enqueueCommand memcpy*",
    ),
    "set": (
        "cudaMemset*",
        "cuMemset*",
        "hipMemset*",
        "urEnqueueUSMFill*",
        "urEnqueueMemBufferFill",
        "piextUSMEnqueueMemset",
        "zeCommandListAppendMemoryFill",
        "enqueueCommand memset*",
    ),
    "wait": (
        "cudaDeviceSynchronize",
        "cudaThreadSynchronize",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cuEventSynchronize",
        "hipDeviceSynchronize",
        "hipStreamSynchronize",
        "hipEventSynchronize",
        "hipCtxSynchronize",
        "urQueueFinish",
        "urEventWait",
        "piQueueFinish",
        "piEventsWait",
        "zeCommandQueueSynchronize",
        "zeEventHostSynchronize",
        "zeFenceHostSynchronize",
        "zeCommandListHostSynchronize",
        "synchronize",
        "synchronizeStream",
        "synchronizeEvent",
    ),
    "poll": (
        "cudaEventQuery",
        "cudaStreamQuery",
        "cuEventQuery",
        "cuStreamQuery",
        "hipEventQuery",
        "hipStreamQuery",
        "zeEventQueryStatus",
        "queryEvent",
    ),
    "order": (
        "cudaEventRecord*",
        "cudaStreamWaitEvent",
        "cuEventRecord*",
        "cuStreamWaitEvent",
        "cuStreamWaitValue*",
        "cuStreamWriteValue*",
        "hipEventRecord*",
        "hipStreamWaitEvent",
        "urEnqueueEventsWait*",
        "piEnqueueEventsWait*",
        "zeCommandListAppendBarrier",
        "zeCommandListAppendSignalEvent",
        "zeCommandListAppendWaitOnEvents",
        "recordEvent",
        "enqueueCommand waitOnEvent",
        "enqueueCommand recordEvent",
    ),
    "query": (
        "cudaOccupancy*",
        "cudaFuncGet*",
        "cudaFuncSet*",
        "cudaGetFuncBySymbol",
        "cudaGetDevice*",
        "cudaGetSymbol*",
        "cudaGetDriverEntryPoint*",
        "cudaGetErrorString",
        "cudaGetErrorName",
        "cudaGetLastError",
        "cudaPeekAtLastError",
        "cudaDeviceGet*",
        "cudaDeviceCanAccessPeer",
        "cudaDriverGetVersion",
        "cudaRuntimeGetVersion",
        "cudaMemGetInfo",
        "cudaPointerGetAttributes",
        "cudaStreamIsCapturing",
        "cudaStreamGet*",
        "cudaThreadExchangeStreamCaptureMode",
        "cudaEventElapsedTime*",
        "cudaSetDevice",
        "cuDeviceGet*",
        "cuFuncGet*",
        "cuFuncSet*",
        "cuKernelGet*",
        "cuOccupancy*",
        "cuPointerGet*",
        "cuGetProcAddress*",
        "cuStreamIsCapturing",
        "cuStreamGet*",
        "cuMemGetInfo",
        "cuMemGetAllocationGranularity",
        "hipOccupancy*",
        "hipModuleOccupancy*",
        "hipFuncGet*",
        "hipFuncSet*",
        "hipGetFuncBySymbol",
        "hipGetDevice*",
        "hipGetSymbol*",
        "hipGetLastError",
        "hipPeekAtLastError",
        "hipGetErrorString",
        "hipDeviceGet*",
        "hipDeviceCanAccessPeer",
        "hipDriverGetVersion",
        "hipRuntimeGetVersion",
        "hipMemGetInfo",
        "hipPointerGetAttribute*",
        "hipStreamIsCapturing",
        "hipStreamGet*",
        "hipThreadExchangeStreamCaptureMode",
        "hipEventElapsedTime",
        "hipSetDevice",
        "hipCtxGet*",
        "urDeviceGet*",
        "urKernelGet*",
        "urEventGet*",
        "urQueueGet*",
        "urUSMGetMemAllocInfo",
    ),
    "allocate": (
        "cudaMalloc*",
        "cudaHostAlloc",
        "cudaHostRegister",
        "cuMemAlloc*",
        "cuMemCreate",
        "cuMemMap*",
        "cuMemAddressReserve",
        "cuMemSetAccess",
        "cuMemHostAlloc",
        "cuMemHostRegister",
        "hipMalloc*",
        "hipExtMalloc*",
        "hipHostMalloc",
        "hipHostAlloc",
        "hipHostRegister",
        "hipMemCreate",
        "hipMemMap",
        "hipMemAddressReserve",
        "hipMemSetAccess",
        "urUSMDeviceAlloc",
        "urUSMHostAlloc",
        "urUSMSharedAlloc",
        "zeMemAlloc*",
    ),
    "free": (
        "cudaFree*",
        "cudaHostUnregister",
        "cuMemFree*",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemAddressFree",
        "cuMemHostUnregister",
        "hipFree*",
        "hipHostFree",
        "hipHostUnregister",
        "hipMemUnmap",
        "hipMemRelease",
        "hipMemAddressFree",
        "urUSMFree",
        "zeMemFree",
    ),
}

_EXACT = {name: role for role, names in API_ROLES.items() for name in names if not name.endswith("*")}
_PREFIX = sorted(
    ((name[:-1], role) for role, names in API_ROLES.items() for name in names if name.endswith("*")),
    key=lambda entry: -len(entry[0]),
)
_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")


@lru_cache(maxsize=4096)
def api_role(name: str) -> str:
    """Role of a runtime or driver call, one of `ROLES`. Names that no table knows are `other`."""
    stem = _SUFFIX.sub("", name)
    found = _EXACT.get(stem)
    if found is not None:
        return found
    for prefix, role in _PREFIX:
        if stem.startswith(prefix):
            return role
    return "other" if _KNOWN_VENDOR.match(stem) else _role_in(stem)


# The tables are complete for these; any other vendor's call is read by the words in its name.
_KNOWN_VENDOR = re.compile(r"(?:cuda|cu|hip|ur|ze|pi)[A-Z]")
_WORDS = (
    ("wait", re.compile(r"synchroni[sz]e", re.IGNORECASE)),
    ("copy", re.compile(r"mem_?cpy|memory_?copy", re.IGNORECASE)),
    ("set", re.compile(r"mem_?set", re.IGNORECASE)),
    ("launch", re.compile(r"launch", re.IGNORECASE)),
)


def _role_in(name: str) -> str:
    """Role by the words of a name that no table has."""
    return next((role for role, words in _WORDS if words.search(name)), "other")


_BLOCKING_COPY = re.compile(r"^(cuda|cu|hip)Memcpy(?!.*Async)(?!.*Peer)")


def copy_blocks(name: str) -> bool:
    """Whether a copy call returns only when its copy is done: the variants without `Async`, and hipMemcpyWithStream."""
    return _BLOCKING_COPY.match(_SUFFIX.sub("", name)) is not None


# -- copies and sets ---------------------------------------------------------------------------------------------------


class Copy(NamedTuple):
    """Direction and the two kinds of memory of a copy or set, in the words of `schema.TABLES["copy_args"]`."""

    direction: str
    source: str
    destination: str


_MEMORY = {
    "pageable": "pageable",
    "pinned": "pinned",
    "host": "?",  # AMD says Host for pinned and pageable alike
    "device": "device",
    "managed": "managed",
    "unified": "managed",
    "array": "array",
}
_END = {"host": "h", "pageable": "h", "pinned": "h", "device": "d"}
_DIRECTIONS = {
    "htod": "HtoD",
    "dtoh": "DtoH",
    "dtod": "DtoD",
    "ptop": "PtoP",
    "htoh": "HtoH",
    "atod": "DtoD",
    "dtoa": "DtoD",
    "atoa": "DtoD",
    "htoa": "HtoD",
    "atoh": "DtoH",
    "hosttodevice": "HtoD",
    "devicetohost": "DtoH",
    "devicetodevice": "DtoD",
    "peertopeer": "PtoP",
    "hosttohost": "HtoH",
}
_COPY_NAME = re.compile(r"^\s*Mem(?:cpy|ory)?\s*(\w+?)?\s*\(\s*([\w?]+)\s*->\s*([\w?]+)", re.IGNORECASE)
_DIRECTION = re.compile(r"(host|device|peer)_?to_?(host|device|peer)|\b([HDAP]to[HDAP])\b|([HD]2[HD])\b", re.IGNORECASE)
_SET_NAME = re.compile(r"\(\s*(\w+)")


@lru_cache(maxsize=4096)
def copy_of(name: str, hint: str, is_set: bool) -> Copy:
    """What a copy or set moves, from its name (`Memcpy HtoD (Pageable -> Device)`) or else a hint (AMD's `kind`)."""
    if is_set:
        target = _SET_NAME.search(name)
        return Copy("set", "?", _MEMORY.get(target[1].lower(), "?") if target else "?")
    source = destination = "?"
    direction = "?"
    named = _COPY_NAME.search(name)
    if named:
        direction = _DIRECTIONS.get((named[1] or "").lower(), "?")
        source, destination = (_MEMORY.get(named[group].lower(), "?") for group in (2, 3))
        if direction == "?":
            direction = _DIRECTIONS.get("to".join(_END.get(named[group].lower(), "?") for group in (2, 3)), "?")
    if direction == "?":
        direction = _direction_in(name)
    if direction == "?":
        direction = _direction_in(hint)
    if direction[0] == "D" and source == "?":
        source = "device"
    if direction[-1] == "D" and destination == "?":
        destination = "device"
    return Copy(direction, source, destination)


def _direction_in(text: str) -> str:
    found = _DIRECTION.search(text)
    if not found:
        return "?"
    if found[3]:
        return _DIRECTIONS.get(found[3].lower(), "?")
    if found[4]:
        return _DIRECTIONS.get(found[4].lower().replace("2", "to"), "?")
    return _DIRECTIONS.get(f"{found[1]}to{found[2]}".lower(), "?")
