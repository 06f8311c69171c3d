"""Triton kernels with planted defects, and good ones: what limits each is known. Compiled, never launched.

Importing this needs triton; `python -m tests.machine_code.planted` writes the listings in tests/data/machine_code anew.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def chase(next_, out, n):
    at = tl.program_id(0)
    for _ in range(n):
        at = tl.load(next_ + at)
    tl.store(out + tl.program_id(0), at)


@triton.jit
def gather_in_a_loop(index, x, out, n, T: tl.constexpr):
    o = tl.arange(0, T)
    total = tl.zeros((T,), tl.float32)
    for i in range(n):
        total += tl.load(x + tl.load(index + i * T + o))
    tl.store(out + o, total)


@triton.jit
def histogram(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    for i in range(n):
        tl.atomic_add(out + tl.load(x + i * T + o), 1)


@triton.jit
def summed_by_atomics(x, out, n, T: tl.constexpr):
    o = tl.arange(0, T)
    for i in range(n):
        tl.atomic_add(out + (i % 4) + o * 0, tl.load(x + i * T + o))


@triton.jit
def double(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    v = tl.load(x + o).to(tl.float64)
    for _ in range(n):
        v = v * 1.0001 + 0.5
    tl.store(out + o, v)


@triton.jit
def norm_in_double(x, out, columns, T: tl.constexpr):
    o = tl.arange(0, T)
    v = tl.load(x + tl.program_id(0) * columns + o).to(tl.float64)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / columns)
    tl.store(out + tl.program_id(0) * columns + o, v.to(tl.float32))


@triton.jit
def product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        total += tl.dot(x, y, input_precision=HOW)
    tl.store(c + rm[:, None] * N + rn[None, :], total.to(c.dtype.element_ty))


@triton.jit
def divide(x, out, n, m, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    total = tl.zeros((T,), tl.float32)
    for i in range(n):
        total += tl.load(x + (o + i) // m + (o + i) % m)
    tl.store(out + o, total)


@triton.jit
def buckets(x, out, T: tl.constexpr):
    """Converts between whole and floating-point numbers, as buckets of relative positions do, and divides none."""
    o = tl.program_id(0) * T + tl.arange(0, T)
    apart = tl.load(x + o).to(tl.float32)
    tl.store(out + o, (tl.log(apart / 16.0) * 8).to(tl.int64))


@triton.jit
def every_third_byte(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + o * 3, tl.load(x + o * 3))


@triton.jit
def halves_of_unknown_number(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    inside = o < n
    tl.store(out + o, tl.load(x + o, inside) * 2, inside)


@triton.jit
def too_large_a_tile(x, out, n, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    a = tl.load(x + at)
    b = tl.load(x + n + at)
    for i in range(n):
        a = a * b + tl.load(x + i * 7 + at)
        b = b * 0.5 + tl.exp(a)
    tl.store(out + at, a + b)


@triton.jit
def columns(x, out, n, stride, T: tl.constexpr):
    o = tl.arange(0, T)
    total = tl.zeros((T,), tl.float32)
    for i in range(n):
        total += tl.load(x + o * stride + i)
    tl.store(out + o, total)


@triton.jit
def columns_of_1024(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + o, tl.load(x + o * 1024))


@triton.jit
def interleaved(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + o, tl.load(x + o * 16) + tl.load(x + o * 16 + 8))


@triton.jit
def copy(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + o, tl.load(x + o))


@triton.jit
def softmax(x, out, columns, T: tl.constexpr):
    o = tl.arange(0, T)
    inside = o < columns
    v = tl.load(x + tl.program_id(0) * columns + o, inside, float("-inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(out + tl.program_id(0) * columns + o, v / tl.sum(v, 0), inside)


@triton.jit
def layer_norm(x, w, b, out, columns, T: tl.constexpr):
    row = tl.program_id(0) * columns
    total, squares = tl.zeros((T,), tl.float32), tl.zeros((T,), tl.float32)
    for k in range(0, columns, T):
        o = k + tl.arange(0, T)
        v = tl.load(x + row + o, o < columns, 0.0).to(tl.float32)
        total += v
        squares += v * v
    mean = tl.sum(total, 0) / columns
    scale = tl.rsqrt(tl.sum(squares, 0) / columns - mean * mean + 1e-5)
    for k in range(0, columns, T):
        o = k + tl.arange(0, T)
        inside = o < columns
        v = tl.load(x + row + o, inside, 0.0).to(tl.float32)
        tl.store(out + row + o, (v - mean) * scale * tl.load(w + o, inside) + tl.load(b + o, inside), inside)


@triton.jit
def gelu(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    v = tl.load(x + o).to(tl.float32)
    tl.store(out + o, v * 0.5 * (1 + tl.erf(v * 0.7071067811865476)))


@triton.jit
def embedding(index, x, out, columns, T: tl.constexpr):
    o = tl.arange(0, T)
    row = tl.load(index + tl.program_id(0))
    tl.store(out + tl.program_id(0) * columns + o, tl.load(x + row * columns + o))


@triton.jit
def row_sum(x, out, columns, T: tl.constexpr):
    total = tl.zeros((T,), tl.float32)
    for k in range(0, columns, T):
        total += tl.load(x + tl.program_id(0) * columns + k + tl.arange(0, T))
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def polynomial(x, out, n, T: tl.constexpr):
    o = tl.program_id(0) * T + tl.arange(0, T)
    v = tl.load(x + o)
    total = v
    for _ in range(n):
        total = total * v + 0.5
    tl.store(out + o, total)


@triton.jit
def shifted(x, out, n, rows, columns, T: tl.constexpr):
    for start in range(0, n, T):
        at = start + tl.arange(0, T)
        row, column = at // columns % rows, at % columns
        tl.store(out + at, tl.load(x + row * columns + (column + 1) % columns))


@triton.jit
def columns_written(x, out, rows, columns, n, T: tl.constexpr):
    at = tl.program_id(0) * T + tl.arange(0, T)
    for column in range(columns):
        value = tl.load(x + column * rows + at, mask=at < n)
        tl.store(out + at * columns + column, value, mask=at < n)


@triton.jit
def packed(x, w, out, n, T: tl.constexpr):
    at = tl.program_id(0) * T + tl.arange(0, T)
    a, b = tl.load(x + at, mask=at < n), tl.load(w + at, mask=at < n)
    tl.store(out + 4 * at, a, mask=at < n)
    tl.store(out + 4 * at + 1, b, mask=at < n)
    tl.store(out + 4 * at + 2, a + b, mask=at < n)
    tl.store(out + 4 * at + 3, a - b, mask=at < n)


@triton.jit
def waves(x, out, n, speed, T: tl.constexpr):
    at = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + at, tl.sin(tl.load(x + at) * speed) + tl.cos(tl.load(x + at)))


POINTERS = {"x", "out", "a", "b", "c", "w", "index", "next_"}


class Plant:
    """A kernel, how it is compiled, and what limits it.

    Args:
        kernel: from above. limiter: the first one that is to be named. defect: whether something is wrong with it.
        types: of arguments that are no float32 pointers and no int32 of unknown multiple. multiples: numbers that are
            multiples of 16.
    """

    def __init__(
        self,
        kernel,
        limiter,
        *,
        defect=True,
        name="",
        types=None,
        multiples=(),
        warps=4,
        stages=3,
        target=90,
        aligned=True,
        **constants,
    ):
        self.kernel, self.limiter, self.defect, self.target = kernel, limiter, defect, target
        self.name = name or kernel.fn.__name__
        self.words = ["--warps", str(warps), "--stages", str(stages), "--target", str(target)]
        for argument in kernel.arg_names:
            if argument in constants:
                self.words += ["--arg", f"{argument}={constants[argument]}"]
                continue
            told = (types or {}).get(argument, "*fp32" if argument in POINTERS else "i32")
            self.words += ["--arg", f"{argument}={told}{':16' if argument in multiples else ''}"]


HALF, BRAIN = dict.fromkeys("abc", "*fp16"), dict.fromkeys(("x", "w", "b", "out"), "*bf16")
ALL = ("N", "K")
PLANTS = [
    Plant(chase, "latency", types={"next_": "*i32", "out": "*i32"}),
    Plant(gather_in_a_loop, "latency", types={"index": "*i32"}, T=256),
    Plant(histogram, "atomics", types={"x": "*i32", "out": "*i32"}, T=256),
    Plant(summed_by_atomics, "atomics", T=256),
    Plant(double, "double precision", types={"out": "*fp64"}, T=256),
    Plant(norm_in_double, "double precision", multiples=("columns",), T=1024),
    Plant(product, "no tensor cores", name="product_in_float32", multiples=ALL, BM=64, BN=64, BK=32, HOW="ieee"),
    Plant(
        product,
        "no tensor cores",
        name="product_in_float32_sm80",
        target=80,
        multiples=ALL,
        BM=32,
        BN=64,
        BK=32,
        HOW="ieee",
    ),
    Plant(divide, "integer division", T=256),
    Plant(every_third_byte, "narrow loads", types={"x": "*i8", "out": "*i8"}, T=1024),
    Plant(halves_of_unknown_number, "narrow loads", types=BRAIN, T=1024),
    Plant(too_large_a_tile, "spills", R=64, C=256),
    Plant(columns, "uncoalesced loads", T=256),
    Plant(columns_of_1024, "uncoalesced loads", T=256),
    Plant(interleaved, "uncoalesced loads", target=80, T=512),
    Plant(shifted, "integer division", T=1024),
    Plant(columns_written, "uncoalesced stores", multiples=("rows", "columns"), T=512),
    Plant(packed, "narrow stores", T=1024),
    Plant(waves, "exact sine and cosine", types={"speed": "fp32"}, T=1024),
    Plant(
        product,
        "synchronous copies",
        name="product_in_one_stage",
        types=HALF,
        multiples=ALL,
        warps=8,
        stages=1,
        BM=128,
        BN=128,
        BK=64,
        HOW="tf32",
    ),
    Plant(copy, "memory", defect=False, T=1024),
    Plant(copy, "memory", defect=False, name="copy_sm80", target=80, types=BRAIN, T=2048),
    Plant(softmax, "memory", defect=False, multiples=("columns",), warps=8, T=4096),
    Plant(layer_norm, "memory", defect=False, types=BRAIN, multiples=("columns",), warps=8, T=2048),
    Plant(gelu, "memory", defect=False, T=1024),
    Plant(embedding, "memory", defect=False, types={"index": "*i64"}, multiples=("columns",), T=1024),
    Plant(buckets, "memory", defect=False, types={"x": "*i64", "out": "*i64"}, T=1024),
    Plant(row_sum, "memory", defect=False, multiples=("columns",), T=4096),
    Plant(polynomial, "math", defect=False, T=1024),
    Plant(product, "tensor cores", defect=False, types=HALF, multiples=ALL, warps=8, BM=128, BN=128, BK=64, HOW="tf32"),
    Plant(
        product,
        "tensor cores",
        defect=False,
        name="product_sm80",
        target=80,
        types=HALF,
        multiples=ALL,
        BM=64,
        BN=64,
        BK=32,
        HOW="tf32",
    ),
    Plant(
        product, "tensor cores", defect=False, name="product_in_tf32", multiples=ALL, BM=64, BN=64, BK=32, HOW="tf32"
    ),
]


def main() -> None:
    """Write the listings of all plants, for where no compiler is."""
    import gzip
    import json
    import re
    import tempfile
    from pathlib import Path

    import click

    from lanewise.cli.reading.kernel import kernel as command
    from lanewise.machine_code.cubins import cubins_in, listings_of
    from lanewise.machine_code.triton_kernel import capability_of, compiled

    folder = Path(__file__).parents[1] / "data" / "machine_code"
    here = Path(__file__)
    listed = {}
    for plant in PLANTS:
        asked = command.make_context("kernel", [f"{here}::{plant.kernel.fn.__name__}", *plant.words]).params
        with tempfile.TemporaryDirectory() as made:
            ptx = compiled(
                here,
                plant.kernel.fn.__name__,
                asked["arguments"],
                capability_of(asked["target"]),
                asked["warps"],
                asked["stages"],
                Path(made),
            )
            beside = json.loads(ptx.with_suffix(".json").read_text())
            into = Path(made) / "cubins"
            into.mkdir()
            (cubin,) = cubins_in(ptx, into, capability_of(asked["target"]))
            texts = [re.sub(r'"[^"\n]*/(triton/[^"\n]*|planted\.py)"', r'"\1"', text) for text in listings_of(cubin)]
            # Of the sections only what kernels ask for: the others hold paths of this machine.
            texts[2] = texts[2][texts[2].find("\n.nv.info") : texts[2].find("\n.nv.callgraph")]
        data = {"listings": texts, "beside": beside, "limiter": plant.limiter, "defect": plant.defect}
        listed[plant.name] = data
    (folder / "planted.json.gz").write_bytes(gzip.compress(json.dumps(listed).encode(), 9, mtime=0))
    click.echo(f"{len(listed)} kernels")


if __name__ == "__main__":
    main()
