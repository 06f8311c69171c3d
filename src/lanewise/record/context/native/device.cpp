#include "device.h"

#ifndef LANEWISE_CUPTI

namespace lanewise {

std::string start_device(const char*) { return "CUPTI's headers were missing when the collector was built"; }
void stop_device() {}
void note_launches(bool) {}
void clear_device() {}
std::vector<Leaf> read_leaves() { return {}; }
DeviceCounts device_counts() { return {}; }

}  // namespace lanewise

#else

#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "contexts.h"
#include "operators.h"

namespace lanewise {
namespace {

// Prefixes of these have been stable since CUDA 12.0; nothing behind them is read.
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using SetRecord = CUpti_ActivityMemset4;

constexpr size_t kBufferBytes = 4u << 20;
constexpr size_t kMostBuffers = 16;
constexpr size_t kAlignment = 8;
// Launches in flight that are remembered: more than the queue of a device holds.
constexpr size_t kCorrelations = 1u << 18;
constexpr uint64_t kNode = 0xFFFFFF;

#define LANEWISE_CUPTI_FUNCTIONS(X)                                                                              \
  X(cuptiSubscribe) X(cuptiUnsubscribe) X(cuptiEnableCallback) X(cuptiActivityRegisterCallbacks)                 \
  X(cuptiActivityEnable) X(cuptiActivityDisable) X(cuptiActivityFlushAll) X(cuptiActivityGetNextRecord)          \
  X(cuptiActivityGetNumDroppedRecords) X(cuptiGetGraphNodeId) X(cuptiGetResultString)

struct Library {
#define X(name) decltype(&::name) name = nullptr;
  LANEWISE_CUPTI_FUNCTIONS(X)
#undef X
};

struct Key {
  uint64_t context;
  uint64_t what;  // kind, name, detail
  bool operator==(const Key& other) const { return context == other.context && what == other.what; }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    return (key.context * UINT64_C(0x9E3779B97F4A7C15)) ^ (key.what * UINT64_C(0xC2B2AE3D27D4EB4F));
  }
};

struct State {
  Library cupti;
  CUpti_SubscriberHandle subscriber = nullptr;
  std::atomic<bool> on{false};
  // correlation << 32 | tree << 24 | node, at the place of the correlation's lower bits. Written by launching threads,
  // read by the thread that brings records; a launch whose place was taken since is counted as unmatched.
  std::atomic<uint64_t>* launches = new std::atomic<uint64_t>[kCorrelations] {};
  std::atomic<uint64_t> launched{0};
  std::mutex mutex;  // of everything below
  std::unordered_map<Key, Leaf, KeyHash> leaves;
  std::unordered_map<uint64_t, uint64_t> stream_end;
  std::unordered_map<uint32_t, uint64_t> device_end;
  std::unordered_map<uint64_t, uint64_t> graph_nodes;  // graph node -> the context that captured it
  std::unordered_map<const char*, uint32_t> kernel_names;
  DeviceCounts counts;
  std::mutex pool_mutex;
  std::vector<uint8_t*> pool;
  size_t buffers = 0;
};

// Never destroyed: CUPTI's threads may outlive everything else.
State& state = *new State;

std::string describe(CUptiResult result) {
  const char* text = nullptr;
  if (state.cupti.cuptiGetResultString != nullptr) state.cupti.cuptiGetResultString(result, &text);
  return std::string(text != nullptr ? text : "error") + " (" + std::to_string(static_cast<int>(result)) + ")";
}

uint32_t kernel_name(const char* mangled) {
  if (mangled == nullptr) return names.intern("<unnamed kernel>")->id;
  const auto known = state.kernel_names.find(mangled);
  if (known != state.kernel_names.end()) return known->second;
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const uint32_t id = names.intern(status == 0 && plain != nullptr ? plain : mangled)->id;
  std::free(plain);
  // The text lives as long as its module; modules that come and go must not fill the table.
  if (state.kernel_names.size() > 100000) state.kernel_names.clear();
  state.kernel_names.emplace(mangled, id);
  return id;
}

const char* direction(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "PtoP";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH: return "HtoH";
    default: return "other";
  }
}

// -- launches, on the threads of the program ---------------------------------------------------------------------------

void launched(uint32_t correlation) {
  const uint64_t context = current_context();
  if (context == 0) return;
  const uint64_t tree = (context >> 32) - 1;
  state.launches[correlation % kCorrelations].store(
      static_cast<uint64_t>(correlation) << 32 | (tree & 0xFF) << 24 | (context & kNode), std::memory_order_release);
  state.launched.fetch_add(1, std::memory_order_relaxed);
}

void graph_node(CUpti_CallbackId id, const CUpti_GraphData& data) {
  uint64_t number = 0;
  if (state.cupti.cuptiGetGraphNodeId(data.node, &number) != CUPTI_SUCCESS) return;
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
    uint64_t original = 0;
    if (state.cupti.cuptiGetGraphNodeId(data.originalNode, &original) != CUPTI_SUCCESS) return;
    std::lock_guard<std::mutex> lock(state.mutex);
    const auto found = state.graph_nodes.find(original);
    if (found != state.graph_nodes.end()) state.graph_nodes[number] = found->second;
  } else if (const uint64_t context = current_context()) {
    std::lock_guard<std::mutex> lock(state.mutex);
    state.graph_nodes[number] = context;
  }
}

void CUPTIAPI called(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    const auto* resource = static_cast<const CUpti_ResourceData*>(data);
    if (resource->resourceDescriptor != nullptr)
      graph_node(id, *static_cast<const CUpti_GraphData*>(resource->resourceDescriptor));
    return;
  }
  if (!state.on.load(std::memory_order_relaxed)) return;
  const auto* info = static_cast<const CUpti_CallbackData*>(data);
  if (info->callbackSite == CUPTI_API_ENTER) launched(info->correlationId);
}

// -- records, on a thread of CUPTI -------------------------------------------------------------------------------------

uint64_t context_of(uint32_t correlation, uint64_t graph_node) {
  if (graph_node != 0) {
    const auto found = state.graph_nodes.find(graph_node);
    if (found != state.graph_nodes.end()) return found->second;
    ++state.counts.graphs_before;
    return 0;
  }
  const uint64_t entry = state.launches[correlation % kCorrelations].load(std::memory_order_acquire);
  if (entry >> 32 == correlation && entry != 0) return ((entry >> 24 & 0xFF) + 1) << 32 | (entry & kNode);
  ++state.counts.unmatched;
  return 0;
}

void fold(uint64_t context, Kind kind, uint32_t name, uint32_t detail, uint64_t begin, uint64_t end, uint64_t bytes,
          uint32_t device, uint32_t device_context, uint32_t stream) {
  ++state.counts.records;
  if (end < begin || begin == 0) return;
  const uint64_t time = end - begin;
  const Key key{context, static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(detail & 0xFFFFFF) << 32 | name};
  Leaf& leaf = state.leaves[key];
  if (leaf.count == 0) {
    leaf = Leaf{context, static_cast<uint8_t>(kind), name, detail, 0, 0, time, 0, 0.0, 0, 0, 0};
  }
  ++leaf.count;
  leaf.total_ns += time;
  leaf.shortest_ns = std::min(leaf.shortest_ns, time);
  leaf.longest_ns = std::max(leaf.longest_ns, time);
  leaf.squares += static_cast<double>(time) * static_cast<double>(time);
  leaf.bytes += bytes;
  uint64_t& before = state.stream_end[static_cast<uint64_t>(device_context) << 32 | stream];
  if (before != 0 && begin > before) leaf.gap_ns += begin - before;
  before = std::max(before, end);
  uint64_t& latest = state.device_end[device];
  if (latest != 0 && begin > latest) leaf.idle_ns += begin - latest;
  latest = std::max(latest, end);
}

void take(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& one = *reinterpret_cast<const KernelRecord*>(record);
      fold(context_of(one.correlationId, one.graphNodeId), Kind::kKernel, kernel_name(one.name), 0, one.start, one.end,
           0, one.deviceId, one.contextId, one.streamId);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& one = *reinterpret_cast<const CopyRecord*>(record);
      const char* way = direction(one.copyKind);
      fold(context_of(one.correlationId, one.graphNodeId), Kind::kCopy,
           names.intern(std::string("Memcpy ") + way)->id, names.intern(way)->id, one.start, one.end, one.bytes,
           one.deviceId, one.contextId, one.streamId);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& one = *reinterpret_cast<const SetRecord*>(record);
      fold(context_of(one.correlationId, one.graphNodeId), Kind::kSet, names.intern("Memset")->id, 0, one.start,
           one.end, one.bytes, one.deviceId, one.contextId, one.streamId);
      break;
    }
    default: break;
  }
}

void CUPTIAPI requested(uint8_t** buffer, size_t* size, size_t* most) {
  *most = 0;
  *size = kBufferBytes;
  std::lock_guard<std::mutex> lock(state.pool_mutex);
  if (!state.pool.empty()) {
    *buffer = state.pool.back();
    state.pool.pop_back();
  } else if (state.buffers < kMostBuffers) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
    if (*buffer != nullptr) ++state.buffers;
  } else {
    // The driver drops records and says how many.
    *buffer = nullptr;
  }
  if (*buffer == nullptr) *size = 0;
}

void CUPTIAPI completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  if (buffer == nullptr) return;
  try {
    std::lock_guard<std::mutex> lock(state.mutex);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && state.cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) take(record);
    size_t dropped = 0;
    if (state.cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
      state.counts.dropped += dropped;
  } catch (...) {
    count(losses.errors);
  }
  std::lock_guard<std::mutex> lock(state.pool_mutex);
  state.pool.push_back(buffer);
}

// -- start and stop ----------------------------------------------------------------------------------------------------

std::string open_library(const char* path) {
  void* library = nullptr;
  // The one that torch has mapped, if any: two in one process would disturb each other.
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"})
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr && path != nullptr && *path != '\0') library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return "CUPTI's library was not found";
#define X(name)                                                                              \
  state.cupti.name = reinterpret_cast<decltype(state.cupti.name)>(dlsym(library, #name)); \
  if (state.cupti.name == nullptr) return "this CUPTI has no " #name;
  LANEWISE_CUPTI_FUNCTIONS(X)
#undef X
  return "";
}

// Every call that enqueues work; the driver's, which the runtime's end in, and the runtime's own.
std::string enable_launches() {
  static const CUpti_CallbackId driver[] = {
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
      CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
      CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
      CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,     CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async};
  static const CUpti_CallbackId runtime[] = {
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,     CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000,
      CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,     CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
      CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,           CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020,
      CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000,  CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
      CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020};
  const auto enable = [](CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    return state.cupti.cuptiEnableCallback(1, state.subscriber, domain, id);
  };
  for (const CUpti_CallbackId id : driver)
    if (const auto result = enable(CUPTI_CB_DOMAIN_DRIVER_API, id); result != CUPTI_SUCCESS) return describe(result);
  for (const CUpti_CallbackId id : runtime)
    if (const auto result = enable(CUPTI_CB_DOMAIN_RUNTIME_API, id); result != CUPTI_SUCCESS) return describe(result);
  for (const CUpti_CallbackId id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
    if (const auto result = enable(CUPTI_CB_DOMAIN_RESOURCE, id); result != CUPTI_SUCCESS) return describe(result);
  return "";
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

}  // namespace

std::string start_device(const char* library) {
  if (std::string wrong = open_library(library); !wrong.empty()) return wrong;
  const CUptiResult subscribed = state.cupti.cuptiSubscribe(&state.subscriber, called, nullptr);
  if (subscribed != CUPTI_SUCCESS) {
    state.subscriber = nullptr;
    return "another profiler holds the device: " + describe(subscribed);
  }
  std::string wrong = enable_launches();
  if (wrong.empty()) {
    CUptiResult result = state.cupti.cuptiActivityRegisterCallbacks(requested, completed);
    if (result != CUPTI_SUCCESS) wrong = describe(result);
  }
  if (!wrong.empty()) stop_device();
  return wrong;
}

void note_launches(bool on) {
  if (state.subscriber == nullptr || state.on.load(std::memory_order_relaxed) == on) return;
  // What is launched while we are off is not ours to know.
  if (!on) state.cupti.cuptiActivityFlushAll(0);
  state.on.store(on, std::memory_order_relaxed);
  for (const CUpti_ActivityKind kind : kKinds) {
    if (on) {
      state.cupti.cuptiActivityEnable(kind);
    } else {
      state.cupti.cuptiActivityDisable(kind);
    }
  }
}

void stop_device() {
  if (state.subscriber == nullptr) return;
  note_launches(false);
  state.cupti.cuptiActivityFlushAll(1);
  state.cupti.cuptiUnsubscribe(state.subscriber);
  state.subscriber = nullptr;
}

void clear_device() {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.leaves.clear();
  state.stream_end.clear();
  state.device_end.clear();
  state.counts = DeviceCounts{};
  state.launched.store(0, std::memory_order_relaxed);
}

std::vector<Leaf> read_leaves() {
  std::lock_guard<std::mutex> lock(state.mutex);
  std::vector<Leaf> result;
  result.reserve(state.leaves.size());
  for (const auto& entry : state.leaves) result.push_back(entry.second);
  return result;
}

DeviceCounts device_counts() {
  std::lock_guard<std::mutex> lock(state.mutex);
  DeviceCounts counts = state.counts;
  counts.launches = state.launched.load(std::memory_order_relaxed);
  return counts;
}

}  // namespace lanewise

#endif
