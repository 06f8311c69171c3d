"""Writes a deterministic trace in the exact layout of current Kineto, of any size, with realistic names and args.

    python benchmarks/reader/generate.py OUT.json --events 1000000 [--python] [--no-shapes] [--gzip]

The mix follows our own recordings of a training step (`05_llama_train`): per operator with a kernel one launch, two flow
rows and, while gradients are on, two forward/backward flow rows; with `--python` half of all rows are Python frames.
Names: about 600 operators, 1,600 kernels (up to 1,500 characters), 4,000 Python frames; about 900 shape lists.
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

BASE_NS = 1790857026000000000
START_US = 4960356187454.705
PID, BACKWARD = 446, 531

ATEN = (
    "mm addmm bmm linear matmul add add_ mul mul_ sub div sqrt rsqrt pow exp silu gelu softmax _softmax layer_norm "
    "native_layer_norm embedding index_select view reshape transpose t permute expand contiguous clone copy_ _to_copy "
    "to empty empty_strided zeros fill_ zero_ cat split slice select narrow sum mean max argmax topk scatter gather "
    "masked_fill where dropout _scaled_dot_product_flash_attention scaled_dot_product_attention cross_entropy_loss "
    "nll_loss log_softmax unsqueeze squeeze detach chunk stack arange eq lt gt logical_and any all item _local_scalar_dense"
).split()
LAYERS = "Linear RMSNorm SiluAndMul LlamaAttention LlamaMLP LlamaDecoderLayer Embedding Dropout LayerNorm GELU".split()
DTYPES = ("c10::BFloat16", "float", "c10::Half", "int", "long int", "bool")


class Vocabulary:
    """The names of one synthetic program."""

    def __init__(self, rng: random.Random) -> None:
        self.operators = [f"aten::{name}" for name in ATEN]
        self.operators += [f"aten::{name}_backward" for name in ATEN]
        self.operators += [f"autograd::engine::evaluate_function: {name.title()}Backward0" for name in ATEN]
        self.operators += [f"triton_poi_fused_{'_'.join(rng.sample(ATEN, 4))}_{i}" for i in range(350)]
        self.operators += [f"## Call CompiledFxGraph f{rng.getrandbits(128):032x} ##" for _ in range(20)]
        self.kernels = [_kernel(rng, i) for i in range(1600)]
        self.frames = [
            f"/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module_{rng.randrange(90)}.py"
            f"({rng.randrange(2000)}): {rng.choice(ATEN)}_{i}"
            for i in range(3000)
        ]
        self.frames += [
            f"<built-in method {rng.choice(ATEN)} of Tensor object at 0x{rng.getrandbits(47):x}>" for _ in range(600)
        ]
        self.frames += [f"nn.Module: {rng.choice(LAYERS)}_{i}" for i in range(400)]
        self.shapes = [_shapes(rng) for _ in range(900)]


def _kernel(rng: random.Random, index: int) -> str:
    dtype = rng.choice(DTYPES)
    match index % 5:
        case 0:
            tile = rng.choice(("64x8_64x16", "128x64_64x8", "256x128_64x4", "192x192_64x4"))
            return f"nvjet_sm90_tst_{tile}_{rng.choice('124')}x{rng.choice('124')}_h_bz_{rng.choice(('NNT', 'TNT', 'TNN'))}_{index}"
        case 1:
            return f"triton_red_fused_{'_'.join(rng.sample(ATEN, 6))}_{index}"
        case 2:
            functor = f"at::native::{rng.choice(ATEN)}_functor_{index}<{dtype}>"
            return (
                f"void at::native::vectorized_elementwise_kernel<8, {functor}, std::array<char*, 3ul> >"
                f"(int, {functor}, std::array<char*, 3ul>)"
            )
        case 3:
            inner = f"at::native::(anonymous namespace)::launch_{rng.choice(ATEN)}(at::TensorIteratorBase&)::{{lambda()#{index}}}"
            chain = "::operator()() const::".join([inner] * rng.choice((1, 2, 3, 9)))
            return f"void at::native::elementwise_kernel<128, 4, {chain}>(int, {chain})"
        case _:
            return (
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
                f"TensorListMetadata<{index}>, at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<{dtype}> >"
            )


def _shapes(rng: random.Random) -> str:
    count = rng.choice((1, 2, 2, 3, 4, 6))
    dims = [
        [rng.choice((1, 8, 32, 128, 512, 1024, 4096, 14336)) for _ in range(rng.choice((0, 1, 2, 2, 3, 4)))]
        for _ in range(count)
    ]
    strides = [[rng.choice((1, 128, 4096, 14336, 524288)) for _ in shape] for shape in dims]
    types = [rng.choice(DTYPES) if shape else "Scalar" for shape in dims]
    concrete = ["" if shape else str(rng.choice((1, 0, "False", "True", 0.125))) for shape in dims]

    def text(values: list[str]) -> str:
        return "[" + ", ".join(f'"{value}"' for value in values) + "]"

    return (
        f'"Concrete Inputs": {text(concrete)}, "Input type": {text(types)}, '
        f'"Input Strides": {strides}, "Input Dims": {dims}, '
    )


def rows(count: int, *, python: bool, shapes: bool, seed: int = 1) -> Iterator[str]:
    """`count` rows as text, without the separating commas."""
    rng = random.Random(seed)
    words = Vocabulary(rng)
    operators = iter(_host(count, words, rng, python=python, shapes=shapes))
    yield from operators


def _host(count: int, words: Vocabulary, rng: random.Random, *, python: bool, shapes: bool) -> Iterator[str]:
    made = 0
    us = START_US
    external, sequence, correlation, python_id, index, step = 1, 0, 9000, 1, 0, 2
    while made < count:
        span = rng.uniform(200.0, 400.0)
        block: list[str] = []
        device: list[str] = []
        block.append(
            _slice(
                "user_annotation",
                f"ProfilerStep#{step}",
                PID,
                us,
                span,
                f'"External id": {external},"Record function id": 0, "Ev Idx": {index}',
            )
        )
        step, external, index = step + 1, external + 1, index + 1
        at = us + 5.0
        for _ in range(400):
            if python:
                for depth in range(5):
                    block.append(
                        _slice(
                            "python_function",
                            rng.choice(words.frames),
                            PID,
                            at + depth * 0.2,
                            9.0 - depth * 0.5,
                            f'"Python parent id": {python_id - 1 if depth else "null"}, "Python id": {python_id}, "Ev Idx": {index}',
                        )
                    )
                    python_id, index = python_id + 1, index + 1
            backward = rng.random() < 0.4
            thread = BACKWARD if backward else PID
            gradient = rng.random() < 0.4
            for depth in range(3):
                args = f'"External id": {external},"Record function id": 0, '
                if gradient:
                    args += f'"Sequence number": {sequence}, "Fwd thread id": {int(backward)}, '
                if shapes and depth != 1:
                    args += rng.choice(words.shapes)
                block.append(
                    _slice(
                        "cpu_op",
                        rng.choice(words.operators),
                        thread,
                        at + 1.0 + depth,
                        8.0 - 2 * depth,
                        args + f'"Ev Idx": {index}',
                    )
                )
                external, index = external + 1, index + 1
            if gradient:
                block.append(_flow("f" if backward else "s", sequence, PID, thread, at + 1.0, "fwdbwd"))
                sequence += 1
            if rng.random() < 0.55:
                correlation += rng.randrange(1, 12)
                device += _launch(words, rng, external - 1, correlation, thread, at)
            at += rng.uniform(9.0, 14.0)
        us = at + 20.0
        for row in block + device:
            if made == count:
                return
            yield row
            made += 1


def _launch(
    words: Vocabulary, rng: random.Random, external: int, correlation: int, thread: int, at: float
) -> list[str]:
    copy = rng.random() < 0.06
    start = at + rng.uniform(8.0, 40.0)
    if copy:
        work = _slice(
            "gpu_memcpy",
            "Memcpy HtoD (Pageable -> Device)",
            0,
            start,
            rng.uniform(1, 30),
            f'"External id": {external},      "device": 0, "context": 1,      "stream": 7, "correlation": {correlation},      '
            f'"bytes": {rng.randrange(1 << 22)}, "memory bandwidth (GB/s)": {rng.uniform(0.1, 50):.17g}',
            tid=7,
        )
        api = ("cuda_runtime", "cudaMemcpyAsync", 41)
    else:
        grid, block = rng.randrange(1, 4000), rng.choice((128, 256, 384, 1024))
        work = _slice(
            "kernel",
            rng.choice(words.kernels),
            0,
            start,
            rng.uniform(1, 90),
            f'"External id": {external},      "queued": 0, "device": 0, "context": 1,      "stream": 7, '
            f'"correlation": {correlation},      "registers per thread": {rng.randrange(16, 255)},      '
            f'"shared memory": {rng.choice((0, 4096, 164308))},      "blocks per SM": {grid / 132:.6f},      '
            f'"warps per SM": {grid * block / 32 / 132:.6f},      "grid": [{grid}, {rng.randrange(1, 32)}, 1],      '
            f'"block": [{block}, 1, 1],      "est. achieved occupancy %": {rng.randrange(100)}',
            tid=7,
        )
        api = rng.choice((("cuda_runtime", "cudaLaunchKernel", 211), ("cuda_driver", "cuLaunchKernelEx", 652)))
    call = _slice(
        api[0],
        api[1],
        thread,
        at + 4.0,
        rng.uniform(2, 6),
        f'"External id": {external},      "cbid": {api[2]}, "correlation": {correlation}',
    )
    return [
        work,
        _flow("f", correlation, 0, 7, start, "ac2g"),
        call,
        _flow("s", correlation, PID, thread, at + 4.0, "ac2g"),
    ]


def _slice(
    category: str, name: str, process: int, start: float, duration: float, args: str, tid: int | None = None
) -> str:
    thread = tid if tid is not None else process if process == PID else process
    if process == BACKWARD:
        process, thread = PID, BACKWARD
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, "tid": {thread},\n'
        f'    "ts": {start:.3f}, "dur": {duration:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _flow(phase: str, flow: int, process: int, thread: int, at: float, category: str) -> str:
    bind = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": {flow}, "pid": {process}, "tid": {thread}, "ts": {at:.3f},\n'
        f'    "cat": "{category}", "name": "{category}"{bind}\n  }}'
    )


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


def _names() -> Iterator[str]:
    for process, thread, label in (
        (0, 7, "stream 7 "),
        (PID, PID, f"thread {PID} (python3)"),
        (PID, BACKWARD, f"thread {BACKWARD} (pt_autograd_0)"),
    ):
        yield (
            f'  {{\n    "name": "thread_name", "ph": "M", "ts": {START_US:.3f}, "pid": {process}, "tid": {thread},\n'
            f'    "args": {{\n      "name": "{label}"\n    }}\n  }}'
        )


def write(path: Path, count: int, *, python: bool = False, shapes: bool = True, compress: bool = False) -> None:
    """Write a trace of `count` rows (plus three lane names) to `path`."""
    opened: TextIO = gzip.open(path, "wt", compresslevel=6) if compress else path.open("w")  # type: ignore[assignment]
    with opened as out:
        out.write(HEAD)
        first = True
        for row in rows(count, python=python, shapes=shapes):
            out.write(row if first else ",\n" + row)
            first = False
        for row in _names():
            out.write(row if first else ",\n" + row)
            first = False
        out.write(f'\n  ],\n  "traceName": "{path.name}"\n}}\n')


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--python", action="store_true", help="half of the rows are Python frames")
    parser.add_argument("--no-shapes", action="store_true")
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    write(options.path, options.events, python=options.python, shapes=not options.no_shapes, compress=options.gzip)


if __name__ == "__main__":
    main()
