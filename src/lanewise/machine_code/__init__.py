"""What the machine code of kernels says without running it: registers, spills, loops, widths, units, and what limits it.

`tools` finds NVIDIA's disassembler (the triton package brings it), `cubins` gets machine code out of what a user has
(`cuda_source` and `triton_kernel` compile it), `disassembly` reads what the disassembler prints, `loop_nest` finds loops in
it, `warp` follows what the threads of a warp hold (`lanes`), `accesses` says how they access memory, `features` counts what
a loop does, and `limiter` draws the conclusion; `throughput` and `mended` say what that costs, `stall_reasons` what warps
wait for. No GPU is needed, and nothing of a file is run.
"""
