"""Writes a deterministic trace in the exact layout of current Kineto, of any size, with realistic names and args.

    python benchmarks/reader/generate.py OUT.json --events 1000000 [--python] [--no-shapes] [--gzip]

The mix follows our own recordings of a training step: forward operators on the main thread, backward ones on another,
three nested operators per call, a launch with its kernel and two flow rows for about half of them, forward/backward
flows while gradients are on; with `--python` half of all rows are Python frames around the operators.
Names: about 550 operators, 1,600 kernels (up to 1,500 characters), 4,000 Python frames; 900 different shape lists.
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

START_US = 4960356187454.705
MAIN, BACKWARD, STREAM = (446, 446), (446, 531), (0, 7)
FORWARD_CALLS, BACKWARD_CALLS = 240, 160

ATEN = """
mm addmm bmm linear matmul add add_ mul mul_ sub div sqrt rsqrt pow exp silu gelu softmax _softmax layer_norm
native_layer_norm embedding index_select view reshape transpose t permute expand contiguous clone copy_ _to_copy to
empty empty_strided zeros fill_ zero_ cat split slice select narrow sum mean max argmax topk scatter gather masked_fill
where dropout _scaled_dot_product_flash_attention scaled_dot_product_attention cross_entropy_loss nll_loss log_softmax
unsqueeze squeeze detach chunk stack arange eq lt gt logical_and any all item _local_scalar_dense
""".split()  # noqa: SIM905
LAYERS = """
Linear RMSNorm SiluAndMul LlamaAttention LlamaMLP LlamaDecoderLayer Embedding Dropout LayerNorm GELU
""".split()  # noqa: SIM905
DTYPES = ("c10::BFloat16", "float", "c10::Half", "int", "long int", "bool")

HEAD = """
  {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017493504,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472
    }
    ],
      "trace_id": "448BAEC276B149F1BB908228EF58895C",
      "cuda_driver_version": 13000,
      "cuda_runtime_version": 13000,
      "cupti_version": 130001,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""


class Vocabulary:
    """The names and shapes of one synthetic program."""

    def __init__(self, rng: random.Random) -> None:
        self.forward = [f"aten::{name}" for name in ATEN]
        self.forward += [f"triton_poi_fused_{'_'.join(rng.sample(ATEN, 4))}_{i}" for i in range(350)]
        self.backward = [f"autograd::engine::evaluate_function: {name.title()}Backward0" for name in ATEN]
        self.backward += [f"aten::{name}_backward" for name in ATEN]
        self.kernels = [_kernel_name(rng, i) for i in range(1600)]
        self.frames = [
            f"torch/nn/modules/module_{rng.randrange(90)}.py({rng.randrange(2000)}): {rng.choice(ATEN)}_{i}"
            for i in range(3000)
        ]
        self.frames += [
            f"<built-in method {rng.choice(ATEN)} of Tensor object at 0x{rng.getrandbits(47):x}>" for _ in range(600)
        ]
        self.frames += [f"nn.Module: {rng.choice(LAYERS)}_{i}" for i in range(400)]
        self.shapes = [_shapes(rng) for _ in range(900)]


def _kernel_name(rng: random.Random, index: int) -> str:
    dtype = rng.choice(DTYPES)
    native = "at::native::(anonymous namespace)"
    match index % 5:
        case 0:
            tile = rng.choice(("64x8_64x16", "128x64_64x8", "256x128_64x4", "192x192_64x4"))
            layout = rng.choice(("NNT", "TNT", "TNN"))
            return f"nvjet_sm90_tst_{tile}_{rng.choice('124')}x{rng.choice('124')}_h_bz_{layout}_{index}"
        case 1:
            return f"triton_red_fused_{'_'.join(rng.sample(ATEN, 6))}_{index}"
        case 2:
            functor = f"at::native::{rng.choice(ATEN)}_functor_{index}<{dtype}>"
            args = f"{functor}, std::array<char*, 3ul>"
            return f"void at::native::vectorized_elementwise_kernel<8, {args} >(int, {args})"
        case 3:
            inner = f"{native}::launch_{rng.choice(ATEN)}(at::TensorIteratorBase&)::{{lambda()#{index}}}"
            chain = "::operator()() const::".join([inner] * rng.choice((1, 2, 3, 7)))
            return f"void at::native::elementwise_kernel<128, 4, {chain}>(int, {chain})"
        case _:
            lists = f"{native}::FusedOptimizerTensorListMetadata<{index}>"
            return f"void {native}::multi_tensor_apply_kernel<{lists}, {native}::FusedAdamMathFunctor<{dtype}, 4> >"


def _shapes(rng: random.Random) -> str:
    sizes = (1, 8, 32, 128, 512, 1024, 4096, 14336)
    dims = [[rng.choice(sizes) for _ in range(rng.choice((0, 1, 2, 2, 3, 4)))] for _ in range(rng.choice((1, 2, 3, 6)))]
    strides = [[rng.choice((1, 128, 4096, 14336, 524288)) for _ in shape] for shape in dims]
    types = [rng.choice(DTYPES) if shape else "Scalar" for shape in dims]
    concrete = ["" if shape else str(rng.choice((1, 0, "False", "True", 0.125))) for shape in dims]
    texts = ["[" + ", ".join(f'"{value}"' for value in values) + "]" for values in (concrete, types)]
    return (
        f'"Concrete Inputs": {texts[0]}, "Input type": {texts[1]}, "Input Strides": {strides}, "Input Dims": {dims}, '
    )


class Program:
    """Rows of a synthetic training run, step by step."""

    def __init__(self, *, python: bool, shapes: bool, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._words = Vocabulary(self._rng)
        self._python, self._shapes = python, shapes
        self._now = START_US
        self._free = START_US
        self._step, self._external, self._index, self._frame = 2, 1, 0, 1
        self._sequence, self._correlation = 0, 9000
        self._host: list[str] = []
        self._device: list[str] = []

    def rows(self) -> Iterator[str]:
        """Endlessly, one step after the other: the host's rows, then the device's, as Kineto writes them."""
        while True:
            self._host, self._device = [""], []
            begin, annotation = self._now, self._args()
            tape = [number for _ in range(FORWARD_CALLS) if (number := self._call(MAIN, None)) is not None]
            for _ in range(BACKWARD_CALLS):
                self._call(BACKWARD, tape.pop() if tape else None)
            name = f"ProfilerStep#{self._step}"
            self._host[0] = _slice("user_annotation", name, MAIN, begin, self._now - begin, annotation)
            self._step += 1
            self._now += 20.0
            yield from self._host
            yield from self._device

    def _args(self, middle: str = "") -> str:
        text = f'"External id": {self._external},"Record function id": 0, {middle}"Ev Idx": {self._index}'
        self._external, self._index = self._external + 1, self._index + 1
        return text

    def _call(self, thread: tuple[int, int], sequence: int | None) -> int | None:
        """Three nested operators, perhaps inside Python frames, perhaps with a launch; returns a new sequence number."""
        rng, words, at = self._rng, self._words, self._now
        if self._python and thread == MAIN:
            for depth in range(8):
                parent = self._frame - 1 if depth else "null"
                args = f'"Python parent id": {parent}, "Python id": {self._frame}, "Ev Idx": {self._index}'
                frame = rng.choice(words.frames)
                self._host.append(_slice("python_function", frame, thread, at + depth * 0.1, 10.5 - depth * 0.2, args))
                self._frame, self._index = self._frame + 1, self._index + 1
        new = None
        if thread == MAIN and rng.random() < 0.5:
            self._sequence += 1
            new = self._sequence
        number = new if thread == MAIN else sequence
        graph = (
            f'"Sequence number": {number}, "Fwd thread id": {int(thread == BACKWARD)}, ' if number is not None else ""
        )
        names = words.forward if thread == MAIN else words.backward
        for depth in range(3):
            shape = rng.choice(words.shapes) if self._shapes and depth != 1 else ""
            operator = self._args(graph + shape)
            begin, length = at + 1.0 + depth * 0.5, 8.5 - depth
            self._host.append(_slice("cpu_op", rng.choice(names), thread, begin, length, operator))
        if number is not None:
            self._host.append(_flow("s" if thread == MAIN else "f", number, thread, at + 1.0, "fwdbwd"))
        if rng.random() < 0.55:
            self._launch(thread, at + 3.0)
        self._now += rng.uniform(11.0, 14.0)
        return new

    def _launch(self, thread: tuple[int, int], at: float) -> None:
        rng = self._rng
        self._correlation += rng.randrange(1, 12)
        external, correlation = f'"External id": {self._external - 1},      ', f'"correlation": {self._correlation}'
        copy = rng.random() < 0.06
        start = max(self._free, at + rng.uniform(5.0, 12.0))
        duration = rng.uniform(1.0, 30.0)
        self._free = start + duration + 0.8
        if copy:
            place = f'"device": 0, "context": 1,      "stream": 7, {correlation},      '
            size = rng.randrange(1 << 22)
            args = f'{external}{place}"bytes": {size}, "memory bandwidth (GB/s)": {size / duration / 1000:.17g}'
            work = _slice("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", STREAM, start, duration, args)
            api = ("cuda_runtime", "cudaMemcpyAsync", 41)
        else:
            grid, block = rng.randrange(1, 4000), rng.choice((128, 256, 384, 1024))
            args = (
                f'{external}"queued": 0, "device": 0, "context": 1,      "stream": 7, {correlation},      '
                f'"registers per thread": {rng.randrange(16, 255)},      '
                f'"shared memory": {rng.choice((0, 164308))},      '
                f'"blocks per SM": {grid / 132:.6f},      "warps per SM": {grid * block / 32 / 132:.6f},      '
                f'"grid": [{grid}, {rng.randrange(1, 32)}, 1],      "block": [{block}, 1, 1],      '
                f'"est. achieved occupancy %": {rng.randrange(100)}'
            )
            work = _slice("kernel", rng.choice(self._words.kernels), STREAM, start, duration, args)
            api = rng.choice((("cuda_runtime", "cudaLaunchKernel", 211), ("cuda_driver", "cuLaunchKernelEx", 652)))
        call = _slice(api[0], api[1], thread, at, rng.uniform(2.0, 4.0), f'{external}"cbid": {api[2]}, {correlation}')
        self._device.append(work)
        self._device.append(_flow("f", self._correlation, STREAM, start, "ac2g"))
        self._device.append(call)
        self._device.append(_flow("s", self._correlation, thread, at, "ac2g"))


def _slice(category: str, name: str, lane: tuple[int, int], start: float, duration: float, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {lane[0]}, "tid": {lane[1]},\n'
        f'    "ts": {start:.3f}, "dur": {duration:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _flow(phase: str, flow: int, lane: tuple[int, int], at: float, category: str) -> str:
    bind = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": {flow}, "pid": {lane[0]}, "tid": {lane[1]}, "ts": {at:.3f},\n'
        f'    "cat": "{category}", "name": "{category}"{bind}\n  }}'
    )


def _lane_names() -> Iterator[str]:
    for (process, thread), label in (
        (STREAM, "stream 7 "),
        (MAIN, "thread 446 (python3)"),
        (BACKWARD, "thread 531 (pt_autograd_0)"),
    ):
        yield (
            f'  {{\n    "name": "thread_name", "ph": "M", "ts": {START_US:.3f}, "pid": {process}, "tid": {thread},\n'
            f'    "args": {{\n      "name": "{label}"\n    }}\n  }}'
        )


def write(path: Path, count: int, *, python: bool = False, shapes: bool = True, compress: bool = False) -> None:
    """Write a trace of `count` rows, the names of its three lanes among them, to `path`."""
    if compress:
        with gzip.open(path, "wt", compresslevel=6) as out:
            _write(out, path.name, count, python=python, shapes=shapes)
    else:
        with path.open("w") as out:
            _write(out, path.name, count, python=python, shapes=shapes)


def _write(out: TextIO, name: str, count: int, *, python: bool, shapes: bool) -> None:
    labels = list(_lane_names())
    out.write(HEAD)
    for row, _ in zip(Program(python=python, shapes=shapes).rows(), range(count - len(labels)), strict=False):
        out.write(row + ",\n")
    out.write(",\n".join(labels))
    out.write(f'\n  ],\n  "traceName": "{name}"\n}}\n')


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--python", action="store_true", help="half of the rows are Python frames")
    parser.add_argument("--no-shapes", action="store_true")
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    write(options.path, options.events, python=options.python, shapes=not options.no_shapes, compress=options.gzip)


if __name__ == "__main__":
    main()
