// Kernels in pairs: one that is slow for one reason, and its mended twin (`_mended`) that computes the same.
// `planted_cuda.py` says what limits each and how it is launched. No headers: NVRTC compiles it as it is.

#define RESTRICT __restrict__

// A thread adds up a row: neighbouring threads read rows that lie far apart.
extern "C" __global__ void row_sums(const float* RESTRICT x, float* RESTRICT out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float total = 0;
    for (int i = 0; i < columns; i++) total += x[(long long)row * columns + i];
    out[row] = total;
}

__device__ float over_warp(float value) {
    for (int apart = 16; apart; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

extern "C" __global__ void row_sums_mended(const float* RESTRICT x, float* RESTRICT out, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (row >= rows) return;
    const float4* from = (const float4*)(x + (long long)row * columns);
    float total = 0;
#pragma unroll 4
    for (int i = lane; i < columns / 4; i += 32) {
        float4 v = from[i];
        total += v.x + v.y + v.z + v.w;
    }
    total = over_warp(total);
    if (lane == 0) out[row] = total;
}

// Neighbouring threads write a column.
extern "C" __global__ void transpose(const float* RESTRICT x, float* RESTRICT out, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) out[(long long)column * n + row + k] = x[(long long)(row + k) * n + column];
}

template <int PITCH>
__device__ void through_tile(const float* x, float* out, int n) {
    __shared__ float tile[32][PITCH];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(long long)(row + k) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) out[(long long)(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void transpose_mended(const float* RESTRICT x, float* RESTRICT out, int n) {
    through_tile<33>(x, out, n);
}

// A warp reads a column of a tile whose rows are 32 words: all from one bank.
extern "C" __global__ void tile_columns(const float* RESTRICT x, float* RESTRICT out, int n) {
    through_tile<32>(x, out, n);
}

extern "C" __global__ void tile_columns_mended(const float* RESTRICT x, float* RESTRICT out, int n) {
    through_tile<33>(x, out, n);
}

// Each thread works on 16 words of its own in shared memory, one after the other: 16 threads of a warp meet in a bank.
template <int PITCH>
__device__ void smooth(const float* x, float* out, int rounds) {
    __shared__ float own[128 * PITCH];
    float* mine = own + threadIdx.x * PITCH;
    int first = blockIdx.x * 2048;
    for (int k = 0; k < 16; k++) own[(k * 8 + threadIdx.x / 16) * PITCH + threadIdx.x % 16] = x[first + k * 128 + threadIdx.x];
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        float before = mine[15];
#pragma unroll 4
        for (int k = 0; k < 16; k++) {
            float here = mine[k];
            mine[k] = 0.5f * (here + before);
            before = here;
        }
        __syncthreads();
    }
    for (int k = 0; k < 16; k++) out[first + k * 128 + threadIdx.x] = own[(k * 8 + threadIdx.x / 16) * PITCH + threadIdx.x % 16];
}

extern "C" __global__ void own_words(const float* RESTRICT x, float* RESTRICT out, int rounds) { smooth<16>(x, out, rounds); }
extern "C" __global__ void own_words_mended(const float* RESTRICT x, float* RESTRICT out, int rounds) { smooth<17>(x, out, rounds); }

// Of each record of 64 bytes one field is read.
extern "C" __global__ void one_field(const float* RESTRICT records, float* RESTRICT out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = 2 * records[(long long)at * 16];
}

extern "C" __global__ void one_field_mended(const float* RESTRICT field, float* RESTRICT out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = 2 * field[at];
}

// A byte for each thread.
extern "C" __global__ void bytes(const unsigned char* RESTRICT x, unsigned char* RESTRICT out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = x[at] ^ 0x5a;
}

extern "C" __global__ void bytes_mended(const uint4* RESTRICT x, uint4* RESTRICT out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n / 16) return;
    uint4 v = x[at];
    v.x ^= 0x5a5a5a5a, v.y ^= 0x5a5a5a5a, v.z ^= 0x5a5a5a5a, v.w ^= 0x5a5a5a5a;
    out[at] = v;
}

// Few threads, each of which waits for one number after the other.
extern "C" __global__ void __launch_bounds__(128) sum_of_halves(const unsigned short* RESTRICT x, int* RESTRICT out, int n) {
    int total = 0;
#pragma unroll 1
    for (int at = blockIdx.x * 128 + threadIdx.x; at < n; at += gridDim.x * 128) total += x[at];
    out[blockIdx.x * 128 + threadIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(128) sum_of_halves_mended(const uint4* RESTRICT x, int* RESTRICT out, int n) {
    unsigned total = 0;
#pragma unroll 4
    for (int at = blockIdx.x * 128 + threadIdx.x; at < n / 8; at += gridDim.x * 128) {
        uint4 v = x[at];
        unsigned words[4] = {v.x, v.y, v.z, v.w};
        for (int k = 0; k < 4; k++) total += (words[k] & 0xffff) + (words[k] >> 16);
    }
    out[blockIdx.x * 128 + threadIdx.x] = total;
}

// 64 running sums in each of 1024 threads, of which two blocks are to fit: 32 registers.
__device__ void running_sums(const float* x, float* out, int n) {
    float sums[48];
    for (int k = 0; k < 48; k++) sums[k] = k;
    int step = gridDim.x * blockDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) {
        float v = x[at];
#pragma unroll
        for (int k = 0; k < 48; k++) sums[k] = sums[k] * v + sums[(k + 7) % 48];
    }
    float total = 0;
    for (int k = 0; k < 48; k++) total += sums[k];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(1024, 2) too_few_registers(const float* RESTRICT x, float* RESTRICT out, int n) {
    running_sums(x, out, n);
}

extern "C" __global__ void __launch_bounds__(1024, 1) too_few_registers_mended(const float* RESTRICT x, float* RESTRICT out, int n) {
    running_sums(x, out, n);
}

// An array that is indexed by a value lies in local memory.
extern "C" __global__ void local_array(const int* RESTRICT x, int* RESTRICT out, int n) {
    int counts[32];
    for (int k = 0; k < 32; k++) counts[k] = 0;
    int step = gridDim.x * blockDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) counts[x[at] & 31]++;
    int best = 0;
    for (int k = 0; k < 32; k++) best = max(best, counts[k] * 32 + k);
    out[blockIdx.x * blockDim.x + threadIdx.x] = best;
}

extern "C" __global__ void __launch_bounds__(256) local_array_mended(const int* RESTRICT x, int* RESTRICT out, int n) {
    __shared__ int counts[32 * 256];
    for (int k = 0; k < 32; k++) counts[k * 256 + threadIdx.x] = 0;
    int step = gridDim.x * blockDim.x;
#pragma unroll 4
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) counts[(x[at] & 31) * 256 + threadIdx.x]++;
    int best = 0;
    for (int k = 0; k < 32; k++) best = max(best, counts[k * 256 + threadIdx.x] * 32 + k);
    out[blockIdx.x * blockDim.x + threadIdx.x] = best;
}

// Shared memory that is hardly used keeps other blocks out.
template <int WORDS>
__device__ void with_shared(const float* x, float* out, int n) {
    __shared__ float kept[WORDS];
    for (int at = threadIdx.x; at < WORDS; at += 64) kept[at] = x[at];
    __syncthreads();
    int step = gridDim.x * 64;
    float total = 0;
#pragma unroll 4
    for (int at = blockIdx.x * 64 + threadIdx.x; at < n; at += step) total += x[at] * kept[at % WORDS];
    out[blockIdx.x * 64 + threadIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(64) too_much_shared(const float* RESTRICT x, float* RESTRICT out, int n) {
    with_shared<12288>(x, out, n);
}

extern "C" __global__ void __launch_bounds__(64) too_much_shared_mended(const float* RESTRICT x, float* RESTRICT out, int n) {
    with_shared<1024>(x, out, n);
}

// Values that are needed after the loop only are held in registers all along.
template <bool HELD>
__device__ void factors_after(const float* RESTRICT x, const float* RESTRICT factors, float* out, int n) {
    float held[HELD ? 160 : 1], total = 0, sum = 0;
    if (HELD)
#pragma unroll
        for (int k = 0; k < 160; k++) {
            held[k] = factors[k * 128 + threadIdx.x];
            asm volatile("" : "+f"(held[k]));  // here, and not after the loop
        }
    int step = gridDim.x * 128;
#pragma unroll 4
    for (int at = blockIdx.x * 128 + threadIdx.x; at < n; at += step) total += x[at];
    asm volatile("" : "+f"(total));
    if (HELD)
#pragma unroll
        for (int k = 0; k < 160; k++) {
            asm volatile("" : "+f"(held[k]));
            sum += held[k] * (total + k);
        }
    else
#pragma unroll 8
        for (int k = 0; k < 160; k++) sum += factors[k * 128 + threadIdx.x] * (total + k);
    out[blockIdx.x * 128 + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(128) held_values(const float* RESTRICT x, const float* RESTRICT factors, float* RESTRICT out, int n) {
    factors_after<true>(x, factors, out, n);
}

extern "C" __global__ void __launch_bounds__(128) held_values_mended(const float* RESTRICT x, const float* RESTRICT factors, float* RESTRICT out, int n) {
    factors_after<false>(x, factors, out, n);
}

// Odd threads of a warp do something else than even ones: the warp does both.
__device__ float rise(float v, int rounds) {
    for (int k = 0; k < rounds; k++) v = v * 1.0001f + v * v * 0.00001f;
    return v;
}

__device__ float fall(float v, int rounds) {
    for (int k = 0; k < rounds; k++) v = v * 0.999f - v * v * 0.00003f;
    return v;
}

extern "C" __global__ void odd_and_even(const float* RESTRICT x, float* RESTRICT out, int rounds) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = threadIdx.x & 1 ? rise(x[at], rounds) : fall(x[at], rounds);
}

extern "C" __global__ void odd_and_even_mended(const float* RESTRICT x, float* RESTRICT out, int rounds) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = threadIdx.x / 32 & 1 ? rise(x[at], rounds) : fall(x[at], rounds);
}

// All add to one number.
extern "C" __global__ void one_sum(const float* RESTRICT x, float* RESTRICT out, int n) {
    int step = gridDim.x * blockDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) atomicAdd(out + (at & 31), x[at]);
}

extern "C" __global__ void one_sum_mended(const float* RESTRICT x, float* RESTRICT out, int n) {
    int step = gridDim.x * blockDim.x;
    float total = 0;
#pragma unroll 4
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) total += x[at];
    total = over_warp(total);
    if ((threadIdx.x & 31) == 0) atomicAdd(out + (blockIdx.x & 31), total);
}

// Each load waits for the one before.
extern "C" __global__ void chase(const int* RESTRICT next, int* RESTRICT out, int rounds) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, at = thread;
    for (int k = 0; k < rounds; k++) at = next[at];
    out[thread] = at;
}

// What it would be with the places written down beforehand.
extern "C" __global__ void chase_mended(const int* RESTRICT places, int* RESTRICT out, int rounds) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x, at = 0;
#pragma unroll 8
    for (int k = 0; k < rounds; k++) at ^= places[k * threads + thread];
    out[thread] = at;
}

// A constant without an f.
extern "C" __global__ void double_constant(const float* RESTRICT x, float* RESTRICT out, int rounds) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[at];
    for (int k = 0; k < rounds; k++) v = v * 0.999 + 0.001;
    out[at] = v;
}

extern "C" __global__ void double_constant_mended(const float* RESTRICT x, float* RESTRICT out, int rounds) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[at];
    for (int k = 0; k < rounds; k++) v = v * 0.999f + 0.001f;
    out[at] = v;
}

// A division by a number that only the launch knows.
extern "C" __global__ void divisions(const int* RESTRICT x, int* RESTRICT out, int n, int by) {
    int step = gridDim.x * blockDim.x, total = 0;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) total += x[at] / by + x[at] % by;
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

extern "C" __global__ void divisions_mended(const int* RESTRICT x, int* RESTRICT out, int n, int by) {
    int step = gridDim.x * blockDim.x, total = 0;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) total += x[at] / 96 + x[at] % 96;
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

// A product in float32 without tensor cores, out of tiles in shared memory: 64 x 64 for 256 threads, 4 x 4 for each.
extern "C" __global__ void __launch_bounds__(256) plain_product(const float* RESTRICT a, const float* RESTRICT b, float* RESTRICT c, int n) {
    __shared__ float as[16][64], bs[16][64];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float total[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        float4 v = *(const float4*)(a + (long long)(row + threadIdx.x / 4) * n + k + threadIdx.x % 4 * 4);
        int at = threadIdx.x % 4 * 4;
        as[at][threadIdx.x / 4] = v.x, as[at + 1][threadIdx.x / 4] = v.y, as[at + 2][threadIdx.x / 4] = v.z, as[at + 3][threadIdx.x / 4] = v.w;
        *(float4*)&bs[ty][tx * 4] = *(const float4*)(b + (long long)(k + ty) * n + column + tx * 4);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float4 x = *(const float4*)&as[j][ty * 4], y = *(const float4*)&bs[j][tx * 4];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++) total[r][s] += xs[r] * ys[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        *(float4*)(c + (long long)(row + ty * 4 + r) * n + column + tx * 4) = make_float4(total[r][0], total[r][1], total[r][2], total[r][3]);
}

// The same on tensor cores, which round float32 to 19 bits: 16 x 32 of the tile for each of 8 warps.
extern "C" __global__ void __launch_bounds__(256) plain_product_mended(const float* RESTRICT a, const float* RESTRICT b, float* RESTRICT c, int n) {
    __shared__ float as[16][72], bs[16][72];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int row = blockIdx.y * 64, column = blockIdx.x * 64, m = warp / 2 * 16, first = warp % 2 * 32;
    float total[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        float4 v = *(const float4*)(a + (long long)(row + threadIdx.x / 4) * n + k + threadIdx.x % 4 * 4);
        int at = threadIdx.x % 4 * 4;
        as[at][threadIdx.x / 4] = v.x, as[at + 1][threadIdx.x / 4] = v.y, as[at + 2][threadIdx.x / 4] = v.z, as[at + 3][threadIdx.x / 4] = v.w;
        *(float4*)&bs[threadIdx.x / 16][threadIdx.x % 16 * 4] = *(const float4*)(b + (long long)(k + threadIdx.x / 16) * n + column + threadIdx.x % 16 * 4);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; j += 8) {
            unsigned x[4] = {__float_as_uint(as[j + t][m + g]), __float_as_uint(as[j + t][m + g + 8]),
                             __float_as_uint(as[j + t + 4][m + g]), __float_as_uint(as[j + t + 4][m + g + 8])};
#pragma unroll
            for (int s = 0; s < 4; s++) {
                unsigned y[2] = {__float_as_uint(bs[j + t][first + s * 8 + g]), __float_as_uint(bs[j + t + 4][first + s * 8 + g])};
                asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(total[s][0]), "+f"(total[s][1]), "+f"(total[s][2]), "+f"(total[s][3])
                             : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
            }
        }
        __syncthreads();
    }
    for (int s = 0; s < 4; s++)
        for (int half = 0; half < 2; half++)
            *(float2*)(c + (long long)(row + m + g + 8 * half) * n + column + first + s * 8 + 2 * t) = make_float2(total[s][2 * half], total[s][2 * half + 1]);
}

// The fast index of the block walks down the columns.
extern "C" __global__ void swapped_indices(const float* RESTRICT x, float* RESTRICT out, int n) {
    int row = blockIdx.x * 32 + threadIdx.x, column = blockIdx.y * 8 + threadIdx.y;
    long long at = (long long)row * n + column;
    out[at] = 2 * x[at];
}

extern "C" __global__ void swapped_indices_mended(const float* RESTRICT x, float* RESTRICT out, int n) {
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    long long at = (long long)row * n + column;
    out[at] = 2 * x[at];
}

// A block for each of a few long rows; mended, a row is divided among many.
__device__ float of_block(float value) {
    __shared__ float warps[32];
    value = over_warp(value);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    return over_warp(threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0);
}

extern "C" __global__ void __launch_bounds__(512) few_rows(const float4* RESTRICT x, float* RESTRICT out, int columns) {
    const float4* row = x + (long long)blockIdx.x * (columns / 4);
    float total = 0;
#pragma unroll 4
    for (int at = threadIdx.x; at < columns / 4; at += 512) {
        float4 v = row[at];
        total += v.x + v.y + v.z + v.w;
    }
    total = of_block(total);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(512) few_rows_mended(const float4* RESTRICT x, float* RESTRICT out, int columns) {
    const float4* row = x + (long long)blockIdx.x * (columns / 4);
    float total = 0;
#pragma unroll 4
    for (int at = blockIdx.y * 512 + threadIdx.x; at < columns / 4; at += 512 * gridDim.y) {
        float4 v = row[at];
        total += v.x + v.y + v.z + v.w;
    }
    total = of_block(total);
    if (threadIdx.x == 0) atomicAdd(out + blockIdx.x, total);
}

// As many units of work for every block; mended, as many blocks as the card holds.
extern "C" __global__ void __launch_bounds__(1024) units(const float* RESTRICT x, float* RESTRICT out, int rounds, int number) {
    for (int unit = blockIdx.x; unit < number; unit += gridDim.x) out[unit * 1024 + threadIdx.x] = rise(x[unit * 1024 + threadIdx.x], rounds);
}

extern "C" __global__ void __launch_bounds__(1024) units_mended(const float* RESTRICT x, float* RESTRICT out, int rounds, int number) {
    for (int unit = blockIdx.x; unit < number; unit += gridDim.x) out[unit * 1024 + threadIdx.x] = rise(x[unit * 1024 + threadIdx.x], rounds);
}

// Good ones: nothing is to be said against them.
extern "C" __global__ void copy(const float4* RESTRICT x, float4* RESTRICT out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = x[at];
}

extern "C" __global__ void axpy(const float* RESTRICT x, float* RESTRICT y, float a, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) y[at] += a * x[at];
}

// Records of three words, all of which are used.
extern "C" __global__ void lengths(const float* RESTRICT points, float* RESTRICT out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    float x = points[3 * at], y = points[3 * at + 1], z = points[3 * at + 2];
    out[at] = sqrtf(x * x + y * y + z * z);
}

// A swizzled tile: no bank conflict, and no padding.
extern "C" __global__ void transpose_swizzled(const float* RESTRICT x, float* RESTRICT out, int n) {
    __shared__ float tile[32][32];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x ^ (threadIdx.y + k)] = x[(long long)(row + k) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) out[(long long)(row + k) * n + column] = tile[threadIdx.x][(threadIdx.y + k) ^ threadIdx.x];
}

extern "C" __global__ void stencil(const float* RESTRICT x, float* RESTRICT out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= 1 && at < n - 1) out[at] = 0.25f * x[at - 1] + 0.5f * x[at] + 0.25f * x[at + 1];
}

// Each block adds up a row, in a tree.
extern "C" __global__ void __launch_bounds__(256) softmax(const float* RESTRICT x, float* RESTRICT out, int columns) {
    const float* row = x + (long long)blockIdx.x * columns;
    float largest = -1e30f, total = 0;
    for (int at = threadIdx.x; at < columns; at += 256) largest = fmaxf(largest, row[at]);
    __shared__ float shared[256];
    shared[threadIdx.x] = largest;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    largest = shared[0];
    for (int at = threadIdx.x; at < columns; at += 256) total += expf(row[at] - largest);
    total = of_block(total);
    for (int at = threadIdx.x; at < columns; at += 256) out[(long long)blockIdx.x * columns + at] = expf(row[at] - largest) / total;
}
