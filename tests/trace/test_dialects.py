"""One vocabulary for every spelling."""

from __future__ import annotations

import pytest

from lanewise.trace.dialects import (
    API_ROLES,
    CATEGORIES,
    ROLES,
    annotation_in_disguise,
    api_role,
    classify,
    copy_of,
    generation_of,
    mtia_device_kind,
)
from lanewise.trace.reader import read
from lanewise.trace.schema import Kind
from tests.support.corpus import PUBLIC


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cudaLaunchKernel", "launch"),
        ("cudaLaunchKernel_ptsz", "launch"),
        ("cudaLaunchKernelExC_v11060", "launch"),
        ("cudaLaunchCooperativeKernelMultiDevice_v9000", "launch"),
        ("cuLaunchKernelEx", "launch"),
        ("hipExtModuleLaunchKernel", "launch"),
        ("hipLaunchCooperativeKernelMultiDevice", "launch"),
        ("urEnqueueKernelLaunch", "launch"),
        ("runFunction - job_prep_and_submit_for_execution", "launch"),
        ("cudaGraphLaunch_v10000", "graph_launch"),
        ("hipGraphLaunch", "graph_launch"),
        ("cudaGraphInstantiateWithFlags", "graph_build"),
        ("cudaGraphDestroy", "graph_build"),
        ("cudaStreamBeginCapture", "graph_build"),
        ("cudaStreamEndCapture_v10000", "graph_build"),
        ("cudaMemcpyAsync", "copy"),
        ("cudaMemcpyPeerAsync_v4000_ptsz", "copy"),
        ("cuMemcpyHtoDAsync_v2", "copy"),
        ("hipMemcpyWithStream", "copy"),
        ("enqueueCommand memcpyHtoDAsync", "copy"),
        ("cudaMemsetAsync", "set"),
        ("hipMemsetAsync", "set"),
        ("cudaDeviceSynchronize", "wait"),
        ("cudaEventSynchronize", "wait"),
        ("hipStreamSynchronize", "wait"),
        ("synchronizeStream", "wait"),
        ("urQueueFinish", "wait"),
        ("cudaEventQuery", "poll"),
        ("cudaStreamWaitEvent", "order"),
        ("cudaEventRecordWithFlags", "order"),
        ("enqueueCommand waitOnEvent", "order"),
        ("recordEvent", "order"),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "query"),
        ("cudaStreamIsCapturing_v10000", "query"),
        ("cudaStreamGetCaptureInfo_v3", "query"),
        ("cudaThreadExchangeStreamCaptureMode", "query"),
        ("hipGetDevicePropertiesR0600", "query"),
        ("cudaMalloc", "allocate"),
        ("cudaHostAlloc", "allocate"),
        ("cuMemMap", "allocate"),
        ("cudaFreeHost", "free"),
        ("cuMemUnmap", "free"),
        ("INVALID", "other"),
        ("somethingNew", "other"),
        ("", "other"),
    ],
)
def test_api_roles(name: str, role: str) -> None:
    assert api_role(name) == role


def test_the_role_table_is_consistent() -> None:
    assert set(API_ROLES) | {"other"} == set(ROLES)
    names = [name for names in API_ROLES.values() for name in names]
    assert len(names) == len(set(names))
    for role, listed in API_ROLES.items():
        for name in listed:
            assert api_role(name.removesuffix("*")) == role, name


@pytest.mark.parametrize(
    ("category", "kind", "side"),
    [
        ("cpu_op", Kind.OPERATOR, "host"),
        ("Operator", Kind.OPERATOR, "host"),
        ("Kernel", Kind.KERNEL, "device"),
        ("gpu_user_annotation", Kind.GPU_ANNOTATION, "device"),
        ("overhead", Kind.OVERHEAD, "none"),
        ("Trace", Kind.OTHER, "none"),
        ("mtia_runtime", Kind.RUNTIME, "host"),
        ("xpu_sync", Kind.SYNC, "device"),
    ],
)
def test_categories(category: str, kind: int, side: str) -> None:
    assert classify(category) == ((kind, side), True)


def test_an_unknown_category_is_other_on_the_host() -> None:
    assert classify("critical_path") == ((Kind.OTHER, "host"), False)
    assert classify("") == ((Kind.OTHER, "host"), False)


@pytest.mark.parametrize(
    ("name", "hint", "expected"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "", ("HtoD", "pageable", "device")),
        ("Memcpy DtoH (Device -> Pinned)", "", ("DtoH", "device", "pinned")),
        ("Memcpy DtoD (Device -> Device)", "", ("DtoD", "device", "device")),
        ("Memcpy PtoP (Device -> Device)", "", ("PtoP", "device", "device")),
        ("Memcpy HtoD (Host -> Device)", "HtoD", ("HtoD", "?", "device")),
        ("Memcpy DtoA (Device -> Array)", "", ("DtoD", "device", "array")),
        ("CopyHostToDevice", "", ("HtoD", "?", "device")),
        ("copy", "DeviceToHost", ("DtoH", "device", "?")),
        ("dma_request", "HOST_TO_DEVICE", ("HtoD", "?", "device")),
        ("Memory copy (Device -> Host)", "", ("DtoH", "device", "?")),
        ("M2D", "", ("?", "?", "?")),
        ("", "", ("?", "?", "?")),
    ],
)
def test_copies(name: str, hint: str, expected: tuple[str, str, str]) -> None:
    assert copy_of(name, hint, False) == expected


def test_sets() -> None:
    assert copy_of("Memset (Device)", "", True) == ("set", "?", "device")
    assert copy_of("Memset (Managed)", "", True) == ("set", "?", "managed")
    assert copy_of("fill", "", True) == ("set", "?", "?")


def test_annotations_of_2021_hide_among_operators() -> None:
    assert annotation_in_disguise("ProfilerStep#5")
    assert annotation_in_disguise("Optimizer.zero_grad#SGD.zero_grad")
    assert not annotation_in_disguise("aten::add")


def test_mtia_device_rows() -> None:
    assert mtia_device_kind("dma_request") == Kind.MEMCPY
    assert mtia_device_kind("event_wait") == Kind.SYNC
    assert mtia_device_kind("merge") == Kind.KERNEL


def test_generations() -> None:
    assert generation_of({"Operator"}, {"async"}, False) == "2021"
    assert generation_of({"cpu_op"}, {"async_cpu_to_gpu"}, False) == "2022"
    assert generation_of({"cpu_op"}, set(), True) == "2024"
    assert generation_of(set(), set(), False) == ""


# -- real files of each dialect ----------------------------------------------------------------------------------------


def public(name: str):
    path = PUBLIC / name
    if not path.exists():
        pytest.skip("needs the public corpus")
    return read(path, cache=False)


def test_a_file_of_2021() -> None:
    trace = public("kineto-history/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz")
    assert trace.reading.generation == "2021"
    assert len(trace.device_work) == 8772 + 12 + 312
    assert sum(trace.name_of(event).startswith("ProfilerStep#") for event in trace.of(Kind.ANNOTATION)) == 6
    assert (trace["events"]["external_id"][trace.api_calls] >= 0).all()
    assert set(trace["lanes"]["process"][trace["lanes"]["side"] == "device"]) == {"0"}
    assert (trace["flows"]["lane"] >= 0).all()
    assert len(trace["memory"]["time"]) == 12838


def test_amd_kernels_get_the_grid_of_their_launch() -> None:
    trace = public("HTA/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz")
    kernels = trace["kernel_args"]
    assert len(kernels["event"]) == 14
    assert (kernels["grid_x"] > 0).all()
    assert (kernels["block_x"] > 0).all()
    assert trace["copy_args"]["direction"].tolist() == ["HtoD", "HtoD"]
    assert (trace["api_args"]["cbid"] > 0).all()


def test_mtia_tells_kernels_copies_and_waits_apart() -> None:
    trace = public("HTA/mtia_inference_trace/mtia_inference_rank_0.json.gz")
    assert len(trace.of(Kind.KERNEL)) == 97
    assert len(trace.of(Kind.MEMCPY)) == 877
    assert len(trace.of(Kind.SYNC)) == 339
    assert set(trace["copy_args"]["direction"]) == {"HtoD", "DtoH"}
    assert (trace["copy_args"]["bytes"] > 0).all()


def test_every_category_of_the_corpus_is_known() -> None:
    if not PUBLIC.exists():
        pytest.skip("needs the public corpus")
    assert "critical_path" not in CATEGORIES
    for path in sorted(PUBLIC.rglob("*trace*.json.gz")):
        assert not read(path, cache=False).reading.unknown_categories, path
