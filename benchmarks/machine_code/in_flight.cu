// How fast memory is read with so many bytes on their way at a time: 4, 8 or 16 bytes for each load of a thread, 1 or 4 loads.

// Read through.
__device__ float value(float v) { return v; }
__device__ float value(float2 v) { return v.x + v.y; }
__device__ float value(float4 v) { return v.x + v.y + v.z + v.w; }

template <typename T, int LOADS>
__device__ void read(const T* __restrict__ x, float* out, int n) {
    float total = 0;
    int step = gridDim.x * blockDim.x, at = blockIdx.x * blockDim.x + threadIdx.x;
    for (; at + (LOADS - 1) * step < n; at += LOADS * step) {
        T loaded[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++) loaded[k] = x[at + k * step];
#pragma unroll
        for (int k = 0; k < LOADS; k++) total += value(loaded[k]);
        asm volatile("" : "+f"(total));
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

#define READ(name, T, LOADS) \
    extern "C" __global__ void __launch_bounds__(256) name(const T* __restrict__ x, float* out, int n) { read<T, LOADS>(x, out, n); }
READ(read_4_1, float, 1)
READ(read_4_4, float, 4)
READ(read_8_1, float2, 1)
READ(read_8_4, float2, 4)
READ(read_16_1, float4, 1)
READ(read_16_4, float4, 4)

// One number for each thread, and out again: the plainest kernel there is, and with four at a time.
extern "C" __global__ void copy_4(const float* __restrict__ x, float* __restrict__ out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = 2 * x[at];
}
extern "C" __global__ void copy_16(const float4* __restrict__ x, float4* __restrict__ out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    float4 v = x[at];
    out[at] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
}
// All warps add to one line of memory at a time, or each to its own.
extern "C" __global__ void add_one_line(float* out, int rounds) {
    for (int k = 0; k < rounds; k++) atomicAdd(out + (threadIdx.x & 31), 1.0f);
}
extern "C" __global__ void add_own_lines(float* out, int rounds) {
    for (int k = 0; k < rounds; k++) atomicAdd(out + blockIdx.x * blockDim.x + threadIdx.x, 1.0f);
}
