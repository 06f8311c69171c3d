#include "cupti_library.h"

#include <dlfcn.h>

#include <array>

namespace lanewise::cupti {
namespace {

struct Call {
  uint32_t id;
  Work work;
};

// Calls that enqueue work, also in the spelling for a default stream per thread. The numbers are CUPTI's and do not change
// between versions; a library that does not know one says so and goes without. What launches is asked for in the driver
// alone, where the runtime's calls end, too, under the same correlation: each call that is asked for costs.
constexpr Call kDriverCalls[] = {
    {307, Work::kKernel},     // cuLaunchKernel
    {442, Work::kKernel},     // cuLaunchKernel_ptsz
    {652, Work::kKernel},     // cuLaunchKernelEx
    {653, Work::kKernel},     // cuLaunchKernelEx_ptsz
    {477, Work::kKernel},     // cuLaunchCooperativeKernel
    {478, Work::kKernel},     // cuLaunchCooperativeKernel_ptsz
    {514, Work::kGraph},      // cuGraphLaunch
    {515, Work::kGraph},      // cuGraphLaunch_ptsz
    {276, Work::kCopyOrSet},  // cuMemcpyHtoD_v2
    {397, Work::kCopyOrSet},  // cuMemcpyHtoD_v2_ptds
    {277, Work::kCopyOrSet},  // cuMemcpyHtoDAsync_v2
    {421, Work::kCopyOrSet},  // cuMemcpyHtoDAsync_v2_ptsz
    {278, Work::kCopyOrSet},  // cuMemcpyDtoH_v2
    {398, Work::kCopyOrSet},  // cuMemcpyDtoH_v2_ptds
    {279, Work::kCopyOrSet},  // cuMemcpyDtoHAsync_v2
    {422, Work::kCopyOrSet},  // cuMemcpyDtoHAsync_v2_ptsz
    {280, Work::kCopyOrSet},  // cuMemcpyDtoD_v2
    {399, Work::kCopyOrSet},  // cuMemcpyDtoD_v2_ptds
    {281, Work::kCopyOrSet},  // cuMemcpyDtoDAsync_v2
    {423, Work::kCopyOrSet},  // cuMemcpyDtoDAsync_v2_ptsz
    {287, Work::kCopyOrSet},  // cuMemcpy2D_v2
    {288, Work::kCopyOrSet},  // cuMemcpy2DUnaligned_v2
    {289, Work::kCopyOrSet},  // cuMemcpy2DAsync_v2
    {424, Work::kCopyOrSet},  // cuMemcpy2DAsync_v2_ptsz
    {290, Work::kCopyOrSet},  // cuMemcpy3D_v2
    {291, Work::kCopyOrSet},  // cuMemcpy3DAsync_v2
    {425, Work::kCopyOrSet},  // cuMemcpy3DAsync_v2_ptsz
    {305, Work::kCopyOrSet},  // cuMemcpy
    {306, Work::kCopyOrSet},  // cuMemcpyAsync
    {418, Work::kCopyOrSet},  // cuMemcpyAsync_ptsz
    {318, Work::kCopyOrSet},  // cuMemcpyPeer
    {319, Work::kCopyOrSet},  // cuMemcpyPeerAsync
    {426, Work::kCopyOrSet},  // cuMemcpyPeerAsync_ptsz
    {321, Work::kCopyOrSet},  // cuMemcpy3DPeerAsync
    {776, Work::kCopyOrSet},  // cuMemcpyBatchAsync
    {777, Work::kCopyOrSet},  // cuMemcpyBatchAsync_ptsz
    {796, Work::kCopyOrSet},  // cuMemcpyBatchAsync_v2
    {797, Work::kCopyOrSet},  // cuMemcpyBatchAsync_v2_ptsz
    {249, Work::kCopyOrSet},  // cuMemsetD8_v2
    {250, Work::kCopyOrSet},  // cuMemsetD16_v2
    {251, Work::kCopyOrSet},  // cuMemsetD32_v2
    {216, Work::kCopyOrSet},  // cuMemsetD8Async
    {428, Work::kCopyOrSet},  // cuMemsetD8Async_ptsz
    {218, Work::kCopyOrSet},  // cuMemsetD16Async
    {429, Work::kCopyOrSet},  // cuMemsetD16Async_ptsz
    {220, Work::kCopyOrSet},  // cuMemsetD32Async
    {430, Work::kCopyOrSet},  // cuMemsetD32Async_ptsz
    {222, Work::kCopyOrSet},  // cuMemsetD2D8Async
    {226, Work::kCopyOrSet},  // cuMemsetD2D32Async
};

constexpr Call kRuntimeCalls[] = {
    {31, Work::kCopyOrSet},   // cudaMemcpy
    {215, Work::kCopyOrSet},  // cudaMemcpy_ptds
    {32, Work::kCopyOrSet},   // cudaMemcpy2D
    {41, Work::kCopyOrSet},   // cudaMemcpyAsync
    {225, Work::kCopyOrSet},  // cudaMemcpyAsync_ptsz
    {44, Work::kCopyOrSet},   // cudaMemcpy2DAsync
    {228, Work::kCopyOrSet},  // cudaMemcpy2DAsync_ptsz
    {39, Work::kCopyOrSet},   // cudaMemcpyToSymbol
    {40, Work::kCopyOrSet},   // cudaMemcpyFromSymbol
    {47, Work::kCopyOrSet},   // cudaMemcpyToSymbolAsync
    {48, Work::kCopyOrSet},   // cudaMemcpyFromSymbolAsync
    {144, Work::kCopyOrSet},  // cudaMemcpy3D
    {145, Work::kCopyOrSet},  // cudaMemcpy3DAsync
    {160, Work::kCopyOrSet},  // cudaMemcpyPeer
    {161, Work::kCopyOrSet},  // cudaMemcpyPeerAsync
    {163, Work::kCopyOrSet},  // cudaMemcpy3DPeerAsync
    {482, Work::kCopyOrSet},  // cudaMemcpyBatchAsync of CUDA 12.8
    {509, Work::kCopyOrSet},  // cudaMemcpyBatchAsync of CUDA 13
    {49, Work::kCopyOrSet},   // cudaMemset
    {233, Work::kCopyOrSet},  // cudaMemset_ptds
    {50, Work::kCopyOrSet},   // cudaMemset2D
    {51, Work::kCopyOrSet},   // cudaMemsetAsync
    {235, Work::kCopyOrSet},  // cudaMemsetAsync_ptsz
    {52, Work::kCopyOrSet},   // cudaMemset2DAsync
};

// Without cuLaunchKernel nothing can be attributed.
constexpr uint32_t kNeeded = 307;

constexpr size_t kIds = 1024;
using Table = std::array<Work, kIds>;

template <size_t count>
constexpr Table table_of(const Call (&calls)[count]) {
  Table table{};
  for (const Call& call : calls) table[call.id] = call.work;
  return table;
}

constexpr Table kDriverWork = table_of(kDriverCalls);
constexpr Table kRuntimeWork = table_of(kRuntimeCalls);

Functions found;

}  // namespace

Functions& functions = found;

std::string describe(Result result) {
  const char* text = nullptr;
  if (found.cuptiGetResultString != nullptr) found.cuptiGetResultString(result, &text);
  return std::string(text != nullptr ? text : "error") + " (" + std::to_string(result) + ")";
}

std::string open_library(const char* path) {
  void* library = nullptr;
  // The one that torch has mapped, if any: two in one process would disturb each other.
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"})
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr && path != nullptr && *path != '\0') library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return "CUPTI's library was not found";
#define X(name)                                                                 \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, #name)); \
  if (found.name == nullptr) return "this CUPTI has no " #name;
  LANEWISE_CUPTI_FUNCTIONS(X)
#undef X
  return "";
}

Work work_of(Domain domain, uint32_t id) {
  if (id >= kIds) return Work::kNone;
  return domain == kDriver ? kDriverWork[id] : kRuntimeWork[id];
}

std::string enable_calls(Subscriber subscriber) {
  const auto enable = [&](Domain domain, uint32_t id) {
    return found.cuptiEnableCallback(1, subscriber, domain, id);
  };
  for (const Call& call : kDriverCalls)
    if (const Result result = enable(kDriver, call.id); result != kSuccess && call.id == kNeeded)
      return describe(result);
  for (const Call& call : kRuntimeCalls) enable(kRuntime, call.id);
  // Without these the work of graphs is counted and not placed.
  for (const uint32_t id : {kGraphNodeCreated, kGraphNodeCloned, kGraphNodeDestroyed}) enable(kResource, id);
  return "";
}

}  // namespace lanewise::cupti
