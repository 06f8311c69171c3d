// A product of two square matrices in float32, c = a b, in eight steps from the plainest kernel to one that keeps the card
// busy. `lanewise kernel examples/gemm_ladder.cu` says of each what limits it: that is what the next one mends.
// Sides are multiples of 128.

typedef long long Index;

// 1. Neighbouring threads compute neighbouring rows: what they load lies a row apart.
extern "C" __global__ void __launch_bounds__(256) step1_naive(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    int row = blockIdx.x * 16 + threadIdx.x % 16, column = blockIdx.y * 16 + threadIdx.x / 16;
    float total = 0;
    for (int k = 0; k < n; k++) total += a[(Index)row * n + k] * b[(Index)k * n + column];
    c[(Index)row * n + column] = total;
}

// 2. Neighbouring threads compute neighbouring columns.
extern "C" __global__ void __launch_bounds__(256) step2_coalesced(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    int row = blockIdx.y * 8 + threadIdx.x / 32, column = blockIdx.x * 32 + threadIdx.x % 32;
    float total = 0;
    for (int k = 0; k < n; k++) total += a[(Index)row * n + k] * b[(Index)k * n + column];
    c[(Index)row * n + column] = total;
}

// 3. What several threads need is loaded once, into shared memory.
extern "C" __global__ void __launch_bounds__(1024) step3_shared(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float as[32][32], bs[32][32];
    int x = threadIdx.x % 32, y = threadIdx.x / 32, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float total = 0;
    for (int k = 0; k < n; k += 32) {
        as[y][x] = a[(Index)row * n + k + x];
        bs[y][x] = b[(Index)(k + y) * n + column];
        __syncthreads();
        for (int j = 0; j < 32; j++) total += as[y][j] * bs[j][x];
        __syncthreads();
    }
    c[(Index)row * n + column] = total;
}

// 4. A thread computes 4 x 4 numbers, and uses each number that it loads four times.
template <bool WIDE>
__device__ void tiles(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float as[16][68], bs[16][64];
    int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float total[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        if (WIDE) {
            int m = threadIdx.x / 4, at = threadIdx.x % 4 * 4;
            float4 v = *(const float4*)(a + (Index)(row + m) * n + k + at);
            as[at][m] = v.x, as[at + 1][m] = v.y, as[at + 2][m] = v.z, as[at + 3][m] = v.w;
            *(float4*)&bs[y][x * 4] = *(const float4*)(b + (Index)(k + y) * n + column + x * 4);
        } else {
            for (int i = 0; i < 4; i++) as[x][y + 16 * i] = a[(Index)(row + y + 16 * i) * n + k + x];
            for (int i = 0; i < 4; i++) bs[threadIdx.x / 64 + 4 * i][threadIdx.x % 64] = b[(Index)(k + threadIdx.x / 64 + 4 * i) * n + column + threadIdx.x % 64];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float left[4], right[4];
            if (WIDE) {
                *(float4*)left = *(const float4*)&as[j][y * 4];
                *(float4*)right = *(const float4*)&bs[j][x * 4];
            } else {
                for (int i = 0; i < 4; i++) left[i] = as[j][y + 16 * i], right[i] = bs[j][x + 16 * i];
            }
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++) total[r][s] += left[r] * right[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            c[(Index)(row + (WIDE ? y * 4 + r : y + 16 * r)) * n + column + (WIDE ? x * 4 + s : x + 16 * s)] = total[r][s];
}

extern "C" __global__ void __launch_bounds__(256) step4_registers(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) { tiles<false>(a, b, c, n); }

// 5. It loads four at a time.
extern "C" __global__ void __launch_bounds__(256) step5_vectorised(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) { tiles<true>(a, b, c, n); }

// On tensor cores: 128 x 128 for 8 warps, 64 x 32 for each. Numbers are rounded to 19 bits (TF32).
const int A = 20, B = 136;  // rows of the tiles, longer than what they hold: no threads meet in a bank

struct Tile {
    float a[128 * A], b[16 * B];
};

__device__ void fetch(Tile& tile, const float* a, const float* b, int n, int row, int column, int k, bool async) {
#pragma unroll
    for (int i = threadIdx.x; i < 512; i += 256) {
        float* to[2] = {tile.a + i / 4 * A + i % 4 * 4, tile.b + i / 32 * B + i % 32 * 4};
        const float* from[2] = {a + (Index)(row + i / 4) * n + k + i % 4 * 4, b + (Index)(k + i / 32) * n + column + i % 32 * 4};
        for (int which = 0; which < 2; which++)
            if (async)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to[which])), "l"(from[which]) : "memory");
            else
                *(float4*)to[which] = *(const float4*)from[which];
    }
    if (async) asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ void multiply(const Tile& tile, float (&total)[4][4][4]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, m = warp / 4 * 64, first = warp % 4 * 32;
#pragma unroll
    for (int j = 0; j < 16; j += 8) {
        unsigned y[4][2];
#pragma unroll
        for (int s = 0; s < 4; s++)
            for (int i = 0; i < 2; i++) y[s][i] = __float_as_uint(tile.b[(j + t + 4 * i) * B + first + s * 8 + g]);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            unsigned x[4];
            for (int i = 0; i < 4; i++) x[i] = __float_as_uint(tile.a[(m + r * 16 + g + i % 2 * 8) * A + j + t + i / 2 * 4]);
#pragma unroll
            for (int s = 0; s < 4; s++) {
                float* d = total[r][s];
                asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                             : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[s][0]), "r"(y[s][1]));
            }
        }
    }
}

template <bool ASYNC>
__device__ void on_tensor_cores(const float* a, const float* b, float* c, int n, int row, int column) {
    __shared__ __align__(16) Tile tile[2];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float total[4][4][4] = {};
    if (ASYNC) fetch(tile[0], a, b, n, row, column, 0, true);
    for (int k = 0; k < n; k += 16) {
        int now = ASYNC ? k / 16 % 2 : 0;
        if (ASYNC) {
            // The next tile comes while this one is multiplied.
            if (k + 16 < n) fetch(tile[1 - now], a, b, n, row, column, k + 16, true);
            if (k + 16 < n)
                asm volatile("cp.async.wait_group 1;" ::: "memory");
            else
                asm volatile("cp.async.wait_group 0;" ::: "memory");
        } else
            fetch(tile[0], a, b, n, row, column, k, false);
        __syncthreads();
        multiply(tile[now], total);
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            for (int half = 0; half < 2; half++)
                *(float2*)(c + (Index)(row + warp / 4 * 64 + r * 16 + lane / 4 + 8 * half) * n + column + warp % 4 * 32 + s * 8 + lane % 4 * 2) = make_float2(total[r][s][2 * half], total[r][s][2 * half + 1]);
}

// 6. Tensor cores.
extern "C" __global__ void __launch_bounds__(256) step6_tensor_cores(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    on_tensor_cores<false>(a, b, c, n, blockIdx.y * 128, blockIdx.x * 128);
}

// 7. Memory is copied to shared memory without passing registers, while the tensor cores work on what came before.
extern "C" __global__ void __launch_bounds__(256) step7_async(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    on_tensor_cores<true>(a, b, c, n, blockIdx.y * 128, blockIdx.x * 128);
}

// 8. As many blocks as the card holds, each of which takes one tile after the other.
extern "C" __global__ void __launch_bounds__(256) step8_persistent(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    int side = n / 128;
    for (int tile = blockIdx.x; tile < side * side; tile += gridDim.x) on_tensor_cores<true>(a, b, c, n, tile / side * 128, tile % side * 128);
}
