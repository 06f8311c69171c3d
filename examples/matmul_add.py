"""torch.add(torch.matmul(x, w), b): the smallest program that shows every part of a profile.

At size 64 the host limits it, at 4096 the device does. `--compile` turns the two operators into one addmm; on a GPU the
2-D addend is then copied first. `--mode reduce-overhead` and `--graph` replay a CUDA graph.
"""

import argparse

import torch


def matmul_add(x, w, b):
    return torch.add(torch.matmul(x, w), b)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=0, help="leading dimension of all operands; 0 for plain matrices")
    parser.add_argument("--dtype", default="", help="bfloat16 on a GPU, float32 on the CPU unless given")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", default=None, help="torch.compile mode")
    parser.add_argument("--graph", action="store_true", help="capture a CUDA graph by hand")
    parser.add_argument("--vector-bias", action="store_true", help="a 1-D b, which fits the epilogue")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--warmup", action="store_true", help="three calls and a synchronisation before the loop")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    on_gpu = args.device.startswith("cuda")
    dtype = getattr(torch, args.dtype or ("bfloat16" if on_gpu else "float32"))
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    shape = (args.batch, args.size, args.size) if args.batch else (args.size, args.size)
    x, w = (torch.randn(shape, device=args.device, dtype=dtype) for _ in range(2))
    b = torch.randn(args.size if args.vector_bias else shape, device=args.device, dtype=dtype)
    call = torch.compile(matmul_add, mode=args.mode) if args.compile else matmul_add

    if args.warmup or args.graph:
        for _ in range(3):
            call(x, w, b)
        if on_gpu:
            torch.cuda.synchronize()

    if args.graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call(x, w, b)

    def step():
        if args.graph:
            graph.replay()
        else:
            call(x, w, b)

    for _ in range(args.steps):
        step()
    if on_gpu:
        torch.cuda.synchronize()
    print(f"matmul_add: {args.steps} steps of size {args.size} on {args.device}")


if __name__ == "__main__":
    main()
