// A CUPTI without a device: what it is told to report, it reports through the same functions as the real one.
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "cupti_abi.h"

using namespace lanewise::cupti;

namespace {

struct State {
  Callback callback = nullptr;
  BufferRequested requested = nullptr;
  BufferCompleted completed = nullptr;
  std::set<std::pair<int, uint32_t>> calls;
  std::set<int> kinds;
  uint32_t version = 130000;
  Result subscribe_result = kSuccess;
  int subscribers = 0;
  int finalized = 0;
  int buffers = 0;  // with us
  uint8_t* buffer = nullptr;
  size_t size = 0;
  size_t used = 0;
  size_t dropped = 0;
  uint64_t nodes_asked = 0;
  const char* symbol = nullptr;  // of what is launched
  int node_type = 0;
};

State state;

size_t size_of(const Record* record) {
  switch (record->kind) {
    // The real ones are longer than what is declared.
    case kConcurrentKernel: return sizeof(KernelRecord) + 64;
    case kMemcpy: return sizeof(CopyRecord) + 32;
    case kMemcpyPeer: return sizeof(PeerCopyRecord) + 16;
    case kMemset: return sizeof(SetRecord) + 16;
    default: return 0;
  }
}

void deliver() {
  if (state.buffer == nullptr) return;
  uint8_t* buffer = state.buffer;
  const size_t used = state.used;
  state.buffer = nullptr;
  state.used = 0;
  --state.buffers;
  state.completed(nullptr, 0, buffer, state.size, used);
}

template <typename T>
void append(const T& record) {
  if (state.kinds.count(record.kind) == 0) return;
  const size_t size = size_of(reinterpret_cast<const Record*>(&record));
  if (state.buffer != nullptr && state.used + size > state.size) deliver();
  if (state.buffer == nullptr) {
    size_t most = 0;
    state.requested(&state.buffer, &state.size, &most);
    if (state.buffer == nullptr) {
      ++state.dropped;
      return;
    }
    ++state.buffers;
  }
  std::memset(state.buffer + state.used, 0xAB, size);
  std::memcpy(state.buffer + state.used, &record, sizeof(T));
  state.used += size;
}

}  // namespace

extern "C" {

Result cuptiGetVersion(uint32_t* version) {
  *version = state.version;
  return kSuccess;
}

Result cuptiGetResultString(Result, const char** text) {
  *text = "CUPTI_ERROR_OF_THE_TEST";
  return kSuccess;
}

Result cuptiSubscribe(Subscriber* subscriber, Callback callback, void*) {
  if (state.subscribe_result != kSuccess) return state.subscribe_result;
  if (state.subscribers > 0) return kMultipleSubscribers;
  state.callback = callback;
  *subscriber = &state;
  ++state.subscribers;
  return kSuccess;
}

Result cuptiUnsubscribe(Subscriber) {
  state.callback = nullptr;
  state.calls.clear();
  --state.subscribers;
  return kSuccess;
}

Result cuptiEnableCallback(uint32_t enable, Subscriber, Domain domain, uint32_t id) {
  // An older library does not know the newest.
  if (id > 700) return 1;
  if (enable) state.calls.insert({domain, id});
  return kSuccess;
}

Result cuptiActivityRegisterCallbacks(BufferRequested requested, BufferCompleted completed) {
  state.requested = requested;
  state.completed = completed;
  return kSuccess;
}

Result cuptiActivityEnable(ActivityKind kind) {
  state.kinds.insert(kind);
  return kSuccess;
}

Result cuptiActivityDisable(ActivityKind kind) {
  state.kinds.erase(kind);
  return kSuccess;
}

Result cuptiActivityFlushAll(uint32_t) {
  deliver();
  return kSuccess;
}

Result cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, Record** record) {
  uint8_t* next = *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + size_of(*record);
  if (next >= buffer + valid) return 12;
  *record = reinterpret_cast<Record*>(next);
  return kSuccess;
}

Result cuptiActivityGetNumDroppedRecords(Context, uint32_t, size_t* dropped) {
  *dropped = state.dropped;
  state.dropped = 0;
  return kSuccess;
}

Result cuptiGetGraphNodeId(GraphNode node, uint64_t* number) {
  ++state.nodes_asked;
  *number = reinterpret_cast<uintptr_t>(node);
  return kSuccess;
}

Result cuptiFinalize() {
  ++state.finalized;
  state.callback = nullptr;
  state.calls.clear();
  state.kinds.clear();
  state.subscribers = 0;
  return kSuccess;
}

// -- what the test says ------------------------------------------------------------------------------------------------

void fake_call(int domain, uint32_t id, uint32_t correlation, int site) {
  if (state.callback == nullptr || state.calls.count({domain, id}) == 0) return;
  CallbackData data{};
  data.site = site;
  data.correlation = correlation;
  data.symbol = state.symbol;
  state.callback(nullptr, static_cast<Domain>(domain), id, &data);
}

void fake_graph_node(uint32_t id, uint64_t node, uint64_t original) {
  if (state.callback == nullptr || state.calls.count({kResource, id}) == 0) return;
  GraphData graph{};
  graph.node = reinterpret_cast<GraphNode>(node);
  graph.original_node = reinterpret_cast<GraphNode>(original);
  graph.node_type = state.node_type;
  ResourceData data{};
  data.descriptor = &graph;
  state.callback(nullptr, kResource, id, &data);
}

void fake_kernel(uint32_t correlation, const char* name, uint64_t start, uint64_t end, uint32_t stream, uint64_t node) {
  KernelRecord record{};
  record.kind = kConcurrentKernel;
  record.correlation = correlation;
  record.name = name;
  record.start = start;
  record.end = end;
  record.stream = stream;
  record.graph_node = node;
  append(record);
}

void fake_copy(uint32_t correlation, int way, int source, int target, uint64_t bytes, uint64_t start, uint64_t end) {
  CopyRecord record{};
  record.kind = kMemcpy;
  record.copy_kind = static_cast<uint8_t>(way);
  record.source_kind = static_cast<uint8_t>(source);
  record.target_kind = static_cast<uint8_t>(target);
  record.correlation = correlation;
  record.bytes = bytes;
  record.start = start;
  record.end = end;
  append(record);
}

void fake_peer_copy(uint32_t correlation, uint64_t bytes, uint64_t start, uint64_t end) {
  PeerCopyRecord record{};
  record.kind = kMemcpyPeer;
  record.copy_kind = kPeerToPeer;
  record.source_kind = record.target_kind = 3;
  record.correlation = correlation;
  record.bytes = bytes;
  record.start = start;
  record.end = end;
  append(record);
}

void fake_set(uint32_t correlation, int memory, uint64_t bytes, uint64_t start, uint64_t end) {
  SetRecord record{};
  record.kind = kMemset;
  record.memory_kind = static_cast<uint16_t>(memory);
  record.correlation = correlation;
  record.bytes = bytes;
  record.start = start;
  record.end = end;
  append(record);
}

void fake_node(int type, const char* symbol) {
  state.node_type = type;
  state.symbol = symbol;
}

void fake_drop(size_t count) { state.dropped += count; }
void fake_subscribe_result(int result) { state.subscribe_result = result; }
void fake_version(uint32_t version) { state.version = version; }
void fake_deliver() { deliver(); }
int fake_subscribers() { return state.subscribers; }
int fake_finalized() { return state.finalized; }
int fake_kinds() { return static_cast<int>(state.kinds.size()); }
int fake_calls() { return static_cast<int>(state.calls.size()); }
int fake_buffers() { return state.buffers; }
}
