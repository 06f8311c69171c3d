"""Writes the trace of a synthetic training loop in the layout of current Kineto: the same contexts in every step.

    python benchmarks/tree/program.py OUT.json [--events 950000] [--layers 12]

About half of all rows are Python frames, as in a recording with stacks. Frames, modules and operators nest as those of
a transformer do; backward work runs on the autograd thread and carries the sequence numbers of its forward operators.
The names come from one program, so the number of distinct contexts does not grow with the number of steps.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

PROCESS, BACKWARD_THREAD = 446, 531
BASE_NS = 4960356187454_000

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0}],
  "cuda_runtime_version": 13000,
  "baseTimeNanoseconds": 1790857026000000000,
  "displayTimeUnit": "ms",
  "traceEvents": [
"""


class Program:
    """Writes rows while a cursor moves forward."""

    def __init__(self, out: TextIO, layers: int) -> None:
        self.out = out
        self.layers = layers
        self.rng = random.Random(7)
        self.events = 0
        self.now = 10.0
        self.device_free = 0.0
        self.thread = PROCESS
        self.python_ids = 0
        self.correlation = 1000
        self.sequence = 1
        self.externals = 0
        self.frames: list[int] = []
        self.modules: dict[str, int] = {}
        self.tape: list[tuple[str, int, str]] = []

    def row(
        self, category: str, name: str, start: float, duration: float, args: str, process: int, thread: int
    ) -> None:
        """One complete event."""
        lead = ",\n" if self.events else ""
        # Whole nanoseconds, so that rows nest exactly, as the profiler's own do.
        begin, length = BASE_NS + round(start * 1000), round((start + duration) * 1000) - round(start * 1000)
        self.out.write(
            f'{lead}  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, "tid": {thread},\n'
            f'    "ts": {begin // 1000}.{begin % 1000:03}, "dur": {length // 1000}.{length % 1000:03},\n'
            f'    "args": {{\n      {args}\n    }}\n  }}'
        )
        self.events += 1

    @contextmanager
    def frame(self, name: str, *, tail: float = 0.3) -> Iterator[None]:
        """A Python frame around what the block states."""
        self.python_ids += 1
        own = self.python_ids
        parent = self.frames[-1] if self.frames else None
        begin = self.now
        self.frames.append(own)
        self.now += 0.3
        yield
        self.now += tail
        self.frames.pop()
        module = ', "Python module id": 0' if name.startswith("nn.Module") else ""
        above = "null" if parent is None else parent
        self.row(
            "python_function",
            name,
            begin,
            self.now - begin,
            f'"Python parent id": {above}, "Python id": {own}{module}, "Ev Idx": {own}',
            PROCESS,
            self.thread,
        )

    def builtin(self, name: str) -> None:
        """A short call of a built-in function."""
        with self.frame(name, tail=0.1):
            pass

    @contextmanager
    def operator(
        self, name: str, *, sequence: int = -1, forward_thread: int = 0, shapes: bool = True
    ) -> Iterator[None]:
        """An operator around what the block states."""
        self.externals += 1
        begin = self.now
        self.now += 0.8
        external = self.externals
        yield
        self.now += 0.6
        numbers = f'"Sequence number": {sequence}, "Fwd thread id": {forward_thread}, ' if sequence >= 0 else ""
        dims = (
            '"Concrete Inputs": ["", "", ""], "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"], '
            '"Input Strides": [[4096, 1], [1, 4096], []], "Input Dims": [[8192, 4096], [4096, 4096], []], '
        )
        arguments = f'"External id": {external}, "Record function id": 0, {numbers}{dims if shapes else ""}'
        self.row("cpu_op", name, begin, self.now - begin, f'{arguments}"Ev Idx": {external}', PROCESS, self.thread)

    def launch(self, kernel: str, mean: float) -> None:
        """A launch and its kernel."""
        self.correlation += 3
        call = self.now
        self.now += self.rng.uniform(2.5, 4.0)
        self.row(
            "cuda_runtime",
            "cudaLaunchKernel",
            call,
            self.now - call - 0.2,
            f'"External id": {self.externals}, "cbid": 211, "correlation": {self.correlation}',
            PROCESS,
            self.thread,
        )
        start = max(self.device_free, call + 6.0)
        duration = self.rng.uniform(0.7, 1.3) * mean
        self.device_free = start + duration
        self.row(
            "kernel",
            kernel,
            start,
            duration,
            f'"External id": {self.externals}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
            f'"correlation": {self.correlation}, "registers per thread": 128, "shared memory": 0, '
            '"blocks per SM": 1.9, "warps per SM": 15.5, "grid": [264, 1, 1], "block": [256, 1, 1], '
            '"est. achieved occupancy %": 25',
            0,
            7,
        )

    # -- the program ---------------------------------------------------------------------------------------------------

    def operation(self, name: str, backward: str, kernel: str) -> None:
        """A differentiable operator with one kernel."""
        sequence = self.sequence
        self.sequence += 1
        inner = name.replace("aten::", "aten::_")
        with self.operator(name, sequence=sequence), self.operator(inner, shapes=False):
            self.launch(kernel, 9.0)
        self.tape.append((backward, sequence, kernel + "_backward"))

    @contextmanager
    def module(self, cls: str, path: str, file: str) -> Iterator[None]:
        """A call of a module: its row, the machinery and its forward."""
        index = self.modules.setdefault(path, sum(1 for known in self.modules if known.startswith(f"{cls}|")))
        self.modules.setdefault(f"{cls}|{path}", index)
        with self.frame(f"nn.Module: {cls}_{index}"), self.frame("torch/nn/modules/module.py(1783): _call_impl"):
            self.builtin("<built-in method _get_tracing_state of pybind11_module object at 0x7f5ff773e180>")
            with self.frame(file):
                yield

    def linear(self, path: str) -> None:
        """A linear layer."""
        with self.module("Linear", path, "torch/nn/modules/linear.py(130): forward"):
            self.builtin("torch/nn/modules/module.py(1955): __getattr__")
            self.builtin("torch/nn/modules/module.py(1955): __getattr__")
            with self.frame("<built-in function linear>"), self.operator("aten::linear"):
                self.operation("aten::addmm", "AddmmBackward0", "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_TNT")

    def norm(self, path: str) -> None:
        """A layer norm."""
        with self.module("LayerNorm", path, "torch/nn/modules/normalization.py(229): forward"):
            self.builtin("torch/nn/modules/module.py(1955): __getattr__")
            with self.frame("torch/nn/functional.py(2900): layer_norm"):
                self.builtin("<built-in function _has_torch_function_variadic>")
                with self.frame("<built-in method layer_norm of type object at 0x7f5ff773e180>"):
                    self.operation(
                        "aten::native_layer_norm",
                        "NativeLayerNormBackward0",
                        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
                    )

    def layer(self, index: int) -> None:
        """A transformer block."""
        path = f"layers.{index}"
        with self.module("Block", path, "model.py(88): forward"):
            self.norm(f"{path}.norm1")
            with self.module("Attention", f"{path}.attention", "model.py(41): forward"):
                for name in ("q", "k", "v"):
                    self.linear(f"{path}.attention.{name}")
                for name in ("view", "transpose"):
                    for _ in range(3):
                        with (
                            self.frame(f"<built-in method {name} of Tensor object at 0x7f5d60288780>"),
                            self.operator(f"aten::{name}"),
                        ):
                            pass
                with self.frame("<built-in function scaled_dot_product_attention>"):
                    self.operation(
                        "aten::_scaled_dot_product_flash_attention",
                        "ScaledDotProductFlashAttentionBackward0",
                        "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>",
                    )
                self.linear(f"{path}.attention.o")
            self.norm(f"{path}.norm2")
            with self.module("MLP", f"{path}.mlp", "model.py(63): forward"):
                self.linear(f"{path}.mlp.up")
                with self.frame("torch/nn/functional.py(1800): gelu"), self.frame("<built-in function gelu>"):
                    self.operation(
                        "aten::gelu", "GeluBackward0", "void at::native::vectorized_elementwise_kernel<8, Gelu>"
                    )
                self.linear(f"{path}.mlp.down")
            for _ in range(2):
                self.operation("aten::add", "AddBackward0", "void at::native::vectorized_elementwise_kernel<8, Add>")

    def step(self, number: int) -> None:
        """One training step."""
        begin = self.now
        self.now += 2.0
        with self.frame("train.py(25): step"):
            with self.module("Model", "model", "model.py(120): forward"):
                for index in range(self.layers):
                    self.layer(index)
                self.norm("norm")
                self.linear("head")
            with (
                self.frame("torch/_tensor.py(576): backward"),
                self.frame("torch/autograd/__init__.py(250): backward"),
                self.frame("torch/autograd/graph.py(800): _engine_run_backward"),
            ):
                self.backward()
            with self.frame("torch/optim/optimizer.py(500): wrapper"):
                start = self.now
                for group in range(4):
                    with self.frame("torch/optim/adamw.py(220): step"):
                        self.builtin("<built-in method get of dict object at 0x7f5d60294140>")
                        with self.operator("aten::_fused_adamw_"):
                            self.launch(f"void multi_tensor_apply_kernel<FusedAdam{group}>", 60.0)
                self.row(
                    "user_annotation",
                    "Optimizer.step#AdamW.step",
                    start,
                    self.now - start,
                    '"Ev Idx": 1',
                    PROCESS,
                    PROCESS,
                )
        self.row("user_annotation", f"ProfilerStep#{number}", begin, self.now - begin, '"Ev Idx": 1', PROCESS, PROCESS)
        self.now += 5.0

    def backward(self) -> None:
        """The autograd thread works while the main thread waits."""
        self.thread = BACKWARD_THREAD
        frames, self.frames = self.frames, []
        for function, sequence, kernel in reversed(self.tape):
            arguments = {"sequence": sequence, "forward_thread": 1}
            with (
                self.operator(f"autograd::engine::evaluate_function: {function}", shapes=False, **arguments),
                self.operator(function, **arguments),
            ):
                for part in range(2 if function == "AddmmBackward0" else 1):
                    with self.operator("aten::mm" if function == "AddmmBackward0" else "aten::backward"):
                        self.launch(f"{kernel}_{part}", 9.0)
            if function == "AddmmBackward0":
                name = "torch::autograd::AccumulateGrad"
                with (
                    self.operator(f"autograd::engine::evaluate_function: {name}", shapes=False),
                    self.operator(name),
                    self.operator("aten::detach", shapes=False),
                ):
                    pass
        self.tape = []
        self.thread, self.frames = PROCESS, frames


def write(path: Path, events: int, layers: int) -> int:
    """Write whole steps until there are about `events` rows; returns how many there are."""
    with path.open("w") as out:
        out.write(HEAD)
        program = Program(out, layers)
        with program.frame("train.py(60): <module>"), program.frame("train.py(40): main"):
            number = 3
            while program.events < events:
                program.step(number)
                number += 1
        for process, thread, label in (
            (0, 7, "stream 7"),
            (PROCESS, PROCESS, f"thread {PROCESS} (python3)"),
            (PROCESS, BACKWARD_THREAD, f"thread {BACKWARD_THREAD} (pt_autograd_0)"),
        ):
            out.write(
                f',\n  {{"name": "thread_name", "ph": "M", "ts": {BASE_NS // 1000}, "pid": {process}, '
                f'"tid": {thread}, "args": {{"name": "{label}"}}}}'
            )
        out.write(f'\n  ],\n  "traceName": "{path.name}"\n}}\n')
    return program.events


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=950_000)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    print(write(options.path, options.events, options.layers), "rows")


if __name__ == "__main__":
    main()
