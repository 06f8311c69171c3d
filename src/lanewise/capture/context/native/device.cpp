#include "device.h"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "contexts.h"
#include "cupti_library.h"
#include "operators.h"

namespace lanewise {
namespace {

using cupti::functions;
using cupti::Work;

constexpr size_t kBufferBytes = 4u << 20;
constexpr size_t kMostBuffers = 14;
constexpr size_t kAlignment = 8;
// Launches in flight that are remembered: more than the queue of a device holds.
constexpr size_t kCorrelations = 1u << 18;
// A node needs 18 bits of its 24; above them it says whether a whole graph was launched.
constexpr uint64_t kNode = 0x7FFFFF;
constexpr uint64_t kWholeGraph = 0x800000;
constexpr size_t kMostGraphNodes = 1u << 18;
// Nodes of graphs that are gone are remembered for a while: records of their last replay are still to come.
constexpr size_t kMostGoneNodes = 1u << 16;
constexpr size_t kMostKernelNames = 100000;
// CUPTI of CUDA 12.6: earlier ones may take a process with CUDA graphs down when they leave it.
constexpr uint32_t kDetaches = 24;

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
  cupti::Subscriber subscriber = nullptr;
  std::atomic<bool> on{false};
  // correlation << 32 | tree << 24 | node, at the place of the correlation's lower bits. Written by launching threads,
  // read by the thread that brings records; a launch whose place was taken since is counted as unmatched.
  std::atomic<uint64_t>* launches = nullptr;  // made with the first subscription
  std::atomic<uint64_t> kernels{0};  // launched one by one
  std::atomic<uint64_t> others{0};   // copies and sets
  std::atomic<uint64_t> graphs{0};
  std::mutex records;  // of what follows
  std::unordered_map<Key, Leaf, KeyHash> leaves;
  std::unordered_map<uint64_t, uint64_t> stream_end;
  std::unordered_map<uint32_t, uint64_t> device_end;
  std::unordered_map<const char*, uint32_t> kernel_names;
  DeviceCounts counts;
  std::mutex graph_mutex;  // of what follows
  std::unordered_map<uint64_t, uint64_t> graph_nodes;  // graph node -> the context that captured it
  std::deque<uint64_t> gone_nodes;
  std::vector<CapturedNode> captured;  // with `records` off
  bool records_wanted = true;
  std::mutex pool_mutex;  // of what follows
  std::vector<uint8_t*> pool;
  size_t buffers = 0;
};

// Never destroyed: CUPTI's threads may outlive everything else.
State& state = *new State;

// The call that this thread is in: a call of the runtime ends in one of the driver, with the same number.
struct InCall {
  bool runtime = false;
  Work work = Work::kNone;
  const char* symbol = nullptr;  // of the kernel
};
thread_local InCall in_call __attribute__((tls_model("initial-exec")));

std::atomic<uint64_t>* counter_of(Work work) {
  switch (work) {
    case Work::kKernel: return &state.kernels;
    case Work::kCopyOrSet: return &state.others;
    case Work::kGraph: return &state.graphs;
    default: return nullptr;
  }
}

uint32_t plain_name(const char* mangled) {
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const uint32_t id = names.intern(status == 0 && plain != nullptr ? plain : mangled)->id;
  std::free(plain);
  return id;
}

uint32_t kernel_name(const char* mangled) {
  if (mangled == nullptr) return names.intern("<unnamed kernel>")->id;
  const auto known = state.kernel_names.find(mangled);
  if (known != state.kernel_names.end()) return known->second;
  const uint32_t id = plain_name(mangled);
  // The text lives as long as its module; modules that come and go must not fill the table.
  if (state.kernel_names.size() > kMostKernelNames) state.kernel_names.clear();
  state.kernel_names.emplace(mangled, id);
  return id;
}

const char* direction(uint8_t kind) {
  switch (kind) {
    case cupti::kHostToDevice:
    case cupti::kHostToArray: return "HtoD";
    case cupti::kDeviceToHost:
    case cupti::kArrayToHost: return "DtoH";
    case cupti::kDeviceToDevice:
    case cupti::kArrayToArray:
    case cupti::kArrayToDevice:
    case cupti::kDeviceToArray: return "DtoD";
    case cupti::kPeerToPeer: return "PtoP";
    case cupti::kHostToHost: return "HtoH";
    default: return "?";
  }
}

// Memory as torch's profiler names it.
const char* memory(uint32_t kind) {
  static const char* const known[] = {"Unknown", "Pageable", "Pinned",        "Device",
                                      "Array",   "Managed",  "Device Static", "Managed Static"};
  return kind < sizeof(known) / sizeof(known[0]) ? known[kind] : known[0];
}

// -- launches, on the threads of the program ---------------------------------------------------------------------------

void note(uint32_t correlation, Work work) {
  const uint64_t context = current_context();
  if (context == 0) return;
  const uint64_t tree = (context >> 32) - 1;
  state.launches[correlation % kCorrelations].store(
      static_cast<uint64_t>(correlation) << 32 | (tree & 0xFF) << 24 | (work == Work::kGraph ? kWholeGraph : 0) |
          (context & kNode),
      std::memory_order_release);
}

void begins(cupti::Domain domain, uint32_t id, uint32_t correlation, const char* symbol) {
  const Work work = cupti::work_of(domain, id);
  if (work == Work::kKernel) in_call.symbol = symbol;
  note(correlation, work);
  if (in_call.runtime) return;
  in_call.runtime = domain == cupti::kRuntime;
  in_call.work = work;
  if (auto* counter = counter_of(in_call.work)) count(*counter);
}

void ends(cupti::Domain domain) {
  in_call.symbol = nullptr;
  if (in_call.runtime && domain != cupti::kRuntime) return;
  in_call = InCall{};
}

// A call that became a node of a graph put nothing on the device.
void captured() {
  if (auto* counter = counter_of(in_call.work)) counter->fetch_sub(1, std::memory_order_relaxed);
  in_call.work = Work::kNone;
}

void graph_node(uint32_t id, const cupti::GraphData& data) {
  uint64_t number = 0;
  if (functions.cuptiGetGraphNodeId(data.node, &number) != cupti::kSuccess) return;
  uint64_t context = 0;
  uint64_t original = 0;
  if (id == cupti::kGraphNodeCreated) {
    captured();
    if (!state.on.load(std::memory_order_relaxed) || (context = current_context()) == 0) return;
    if (!state.records_wanted) {
      if (data.node_type < 0 || data.node_type > 2) return;
      const uint32_t name = data.node_type == 0 && in_call.symbol != nullptr ? plain_name(in_call.symbol) : 0;
      std::lock_guard<std::mutex> lock(state.graph_mutex);
      if (state.captured.size() < kMostGraphNodes)
        state.captured.push_back({context, static_cast<uint32_t>(data.node_type), name});
      return;
    }
  } else if (id == cupti::kGraphNodeCloned) {
    if (functions.cuptiGetGraphNodeId(data.original_node, &original) != cupti::kSuccess) return;
  }
  std::lock_guard<std::mutex> lock(state.graph_mutex);
  if (id == cupti::kGraphNodeDestroyed) {
    if (state.graph_nodes.count(number) == 0) return;
    state.gone_nodes.push_back(number);
    if (state.gone_nodes.size() <= kMostGoneNodes) return;
    state.graph_nodes.erase(state.gone_nodes.front());
    state.gone_nodes.pop_front();
    return;
  }
  if (id == cupti::kGraphNodeCloned) {
    const auto found = state.graph_nodes.find(original);
    if (found == state.graph_nodes.end()) return;
    context = found->second;
  }
  if (state.graph_nodes.size() >= kMostGraphNodes) return;
  // To instantiate a graph creates nodes as well, before or after they are told to be clones: clones know better.
  if (id == cupti::kGraphNodeCloned) {
    state.graph_nodes[number] = context;
  } else {
    state.graph_nodes.emplace(number, context);
  }
}

void called(void*, cupti::Domain domain, uint32_t id, const void* data) {
  try {
    if (domain == cupti::kResource) {
      const auto* resource = static_cast<const cupti::ResourceData*>(data);
      if (resource->descriptor != nullptr) graph_node(id, *static_cast<const cupti::GraphData*>(resource->descriptor));
      return;
    }
    const auto* info = static_cast<const cupti::CallbackData*>(data);
    if (info->site != 0) {
      ends(domain);
    } else if (state.on.load(std::memory_order_relaxed)) {
      begins(domain, id, info->correlation, info->symbol);
    }
  } catch (...) {
    count(losses.errors);
  }
}

// -- records, on a thread of CUPTI -------------------------------------------------------------------------------------

// Where a record belongs, and whether what it tells of was launched on its own.
struct Origin {
  uint64_t context = 0;
  bool alone = false;
};

uint64_t capture_of(uint64_t graph_node) {
  std::lock_guard<std::mutex> lock(state.graph_mutex);
  const auto found = state.graph_nodes.find(graph_node);
  return found != state.graph_nodes.end() ? found->second : 0;
}

Origin origin_of(uint32_t correlation, uint64_t graph_node) {
  if (graph_node != 0) {
    if (const uint64_t context = capture_of(graph_node)) return {context, false};
    // Captured before we began, or where nobody watched: it belongs to where the graph was launched.
    ++state.counts.graphs_before;
  }
  const uint64_t entry = state.launches[correlation % kCorrelations].load(std::memory_order_acquire);
  if (entry >> 32 == correlation && entry != 0)
    return {((entry >> 24 & 0xFF) + 1) << 32 | (entry & kNode), graph_node == 0 && (entry & kWholeGraph) == 0};
  if (graph_node == 0) ++state.counts.unmatched;
  return {0, graph_node == 0};
}

struct Span {
  uint64_t begin;
  uint64_t end;
  uint64_t bytes;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
};

template <typename T>
Span span_of(const T& record, uint64_t bytes) {
  return {record.start, record.end, bytes, record.device, record.context, record.stream};
}

void fold(Origin origin, Kind kind, uint32_t name, uint32_t detail, const Span& span) {
  ++state.counts.records;
  // What was never finished has no times.
  if (span.end < span.begin || span.begin == 0) {
    ++state.counts.unfinished;
    return;
  }
  const uint64_t time = span.end - span.begin;
  const Key key{origin.context, static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(detail & 0xFFFFFF) << 32 | name};
  Leaf& leaf = state.leaves[key];
  if (leaf.count == 0) {
    leaf = Leaf{};
    leaf.context = origin.context;
    leaf.kind = static_cast<uint8_t>(kind);
    leaf.name = name;
    leaf.detail = detail;
    leaf.shortest_ns = time;
  }
  ++leaf.count;
  leaf.launches += origin.alone;
  leaf.total_ns += time;
  leaf.shortest_ns = std::min(leaf.shortest_ns, time);
  leaf.longest_ns = std::max(leaf.longest_ns, time);
  leaf.squares += static_cast<double>(time) * static_cast<double>(time);
  leaf.bytes += span.bytes;
  uint64_t& before = state.stream_end[static_cast<uint64_t>(span.context) << 32 | span.stream];
  if (before != 0 && span.begin > before) leaf.gap_ns += span.begin - before;
  before = std::max(before, span.end);
  uint64_t& latest = state.device_end[span.device];
  if (latest != 0 && span.begin > latest) leaf.idle_ns += span.begin - latest;
  latest = std::max(latest, span.end);
}

template <typename T>
void fold_copy(const T& one) {
  const char* way = direction(one.copy_kind);
  const std::string name =
      std::string("Memcpy ") + way + " (" + memory(one.source_kind) + " -> " + memory(one.target_kind) + ")";
  fold(origin_of(one.correlation, one.graph_node), Kind::kCopy, names.intern(name)->id, names.intern(way)->id,
       span_of(one, one.bytes));
}

void take(const cupti::Record* record) {
  switch (record->kind) {
    case cupti::kConcurrentKernel: {
      const auto& one = *reinterpret_cast<const cupti::KernelRecord*>(record);
      const Origin origin = origin_of(one.correlation, one.graph_node);
      state.counts.kernel_records += origin.alone;
      fold(origin, Kind::kKernel, kernel_name(one.name), 0, span_of(one, 0));
      break;
    }
    case cupti::kMemcpy: fold_copy(*reinterpret_cast<const cupti::CopyRecord*>(record)); break;
    case cupti::kMemcpyPeer: fold_copy(*reinterpret_cast<const cupti::PeerCopyRecord*>(record)); break;
    case cupti::kMemset: {
      const auto& one = *reinterpret_cast<const cupti::SetRecord*>(record);
      fold(origin_of(one.correlation, one.graph_node), Kind::kSet,
           names.intern(std::string("Memset (") + memory(one.memory_kind) + ")")->id, 0, span_of(one, one.bytes));
      break;
    }
    default: break;
  }
}

void requested(uint8_t** buffer, size_t* size, size_t* most) {
  *most = 0;
  *size = kBufferBytes;
  *buffer = nullptr;
  std::lock_guard<std::mutex> lock(state.pool_mutex);
  if (!state.pool.empty()) {
    *buffer = state.pool.back();
    state.pool.pop_back();
  } else if (state.buffers < kMostBuffers) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
    if (*buffer != nullptr) ++state.buffers;
  }
  // Without one the driver drops records and says how many.
  if (*buffer == nullptr) *size = 0;
}

// Nothing of CUPTI is called while a lock of ours is held: whoever flushes may hold one of its own.
void completed(cupti::Context context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  if (buffer == nullptr) return;
  try {
    std::vector<const cupti::Record*> found;
    found.reserve(valid / sizeof(cupti::SetRecord));
    cupti::Record* record = nullptr;
    while (valid > 0 && functions.cuptiActivityGetNextRecord(buffer, valid, &record) == cupti::kSuccess)
      found.push_back(record);
    size_t dropped = 0;
    if (functions.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) != cupti::kSuccess) dropped = 0;
    std::lock_guard<std::mutex> lock(state.records);
    for (const cupti::Record* one : found) take(one);
    state.counts.dropped += dropped;
  } catch (...) {
    count(losses.errors);
  }
  std::lock_guard<std::mutex> lock(state.pool_mutex);
  state.pool.push_back(buffer);
}

// -- start and stop ----------------------------------------------------------------------------------------------------

constexpr cupti::ActivityKind kKinds[] = {cupti::kConcurrentKernel, cupti::kMemcpy, cupti::kMemcpyPeer,
                                          cupti::kMemset};

}  // namespace

Started start_device(const char* library, bool records) {
  if (state.subscriber != nullptr) return {};
  state.records_wanted = records;
  if (std::string wrong = cupti::open_library(library); !wrong.empty()) return {wrong};
  if (state.launches == nullptr) state.launches = new std::atomic<uint64_t>[kCorrelations] {};
  const cupti::Result subscribed = functions.cuptiSubscribe(&state.subscriber, called, nullptr);
  if (subscribed != cupti::kSuccess) {
    state.subscriber = nullptr;
    if (subscribed == cupti::kMultipleSubscribers)
      return {"another profiler, torch's or Nsight, has held the device since before", true};
    return {"CUPTI does not work here: " + cupti::describe(subscribed)};
  }
  std::string wrong = cupti::enable_calls(state.subscriber);
  if (wrong.empty() && records) {
    const cupti::Result result = functions.cuptiActivityRegisterCallbacks(requested, completed);
    if (result != cupti::kSuccess) wrong = cupti::describe(result);
  }
  if (!wrong.empty()) stop_device();
  return {wrong};
}

void note_launches(bool on) {
  if (state.subscriber == nullptr || state.on.load(std::memory_order_relaxed) == on) return;
  // What is launched while we are off is not ours to know.
  if (on) state.on.store(true, std::memory_order_relaxed);
  for (const cupti::ActivityKind kind : kKinds) {
    if (!state.records_wanted) break;
    if (on) {
      functions.cuptiActivityEnable(kind);
    } else {
      functions.cuptiActivityDisable(kind);
    }
  }
  if (!on) state.on.store(false, std::memory_order_relaxed);
}

std::vector<CapturedNode> take_captured() {
  std::lock_guard<std::mutex> lock(state.graph_mutex);
  std::vector<CapturedNode> found;
  found.swap(state.captured);
  return found;
}

void flush_device(bool all) {
  if (state.subscriber != nullptr && state.records_wanted) functions.cuptiActivityFlushAll(all ? cupti::kFlushForced : 0);
}

void stop_device() {
  if (state.subscriber == nullptr) return;
  note_launches(false);
  flush_device(true);
  functions.cuptiUnsubscribe(state.subscriber);
  state.subscriber = nullptr;
  std::lock_guard<std::mutex> lock(state.pool_mutex);
  for (uint8_t* buffer : state.pool) std::free(buffer);
  state.buffers -= state.pool.size();
  state.pool.clear();
}

std::string detach_device() {
  if (state.subscriber != nullptr || functions.cuptiFinalize == nullptr) return "";
  uint32_t version = 0;
  if (functions.cuptiGetVersion(&version) != cupti::kSuccess || version < kDetaches)
    return "another profiler holds the device, and CUPTI before CUDA 12.6 cannot be taken from it";
  const cupti::Result result = functions.cuptiFinalize();
  return result == cupti::kSuccess ? "" : cupti::describe(result);
}

void clear_device() {
  {
    std::lock_guard<std::mutex> lock(state.records);
    state.leaves.clear();
    state.stream_end.clear();
    state.device_end.clear();
    state.counts = DeviceCounts{};
  }
  {
    // They name contexts of trees that are gone.
    std::lock_guard<std::mutex> lock(state.graph_mutex);
    state.graph_nodes.clear();
    state.gone_nodes.clear();
    state.captured.clear();
  }
  if (state.launches != nullptr)
    for (size_t at = 0; at < kCorrelations; ++at) state.launches[at].store(0, std::memory_order_relaxed);
  for (auto* counter : {&state.kernels, &state.others, &state.graphs}) counter->store(0, std::memory_order_relaxed);
}

std::vector<Leaf> read_leaves() {
  std::lock_guard<std::mutex> lock(state.records);
  std::vector<Leaf> result;
  result.reserve(state.leaves.size());
  for (const auto& entry : state.leaves) result.push_back(entry.second);
  return result;
}

DeviceCounts device_counts() {
  std::lock_guard<std::mutex> lock(state.records);
  DeviceCounts counts = state.counts;
  counts.kernels = state.kernels.load(std::memory_order_relaxed);
  counts.others = state.others.load(std::memory_order_relaxed);
  counts.graphs = state.graphs.load(std::memory_order_relaxed);
  return counts;
}

}  // namespace lanewise
