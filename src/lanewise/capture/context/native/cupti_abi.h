// What is used of CUPTI, declared here: its library comes with every CUDA build of torch, but its headers need others that
// no wheel of torch brings. Values and the beginnings of structs are the same in CUDA 11.8 to 13.5, which
// tests/capture/context/test_cupti_abi.py compares with the headers themselves; nothing behind these members is read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lanewise::cupti {

using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kMultipleSubscribers = 39;

using Subscriber = void*;
using Context = void*;
using GraphNode = void*;

enum Domain : int { kDriver = 1, kRuntime = 2, kResource = 3 };

// CUpti_CallbackId of the resource domain.
constexpr uint32_t kGraphNodeCreated = 13;
constexpr uint32_t kGraphNodeDestroyed = 14;
constexpr uint32_t kGraphNodeCloned = 20;

enum ActivityKind : int { kMemcpy = 1, kMemset = 2, kConcurrentKernel = 10, kMemcpyPeer = 22 };

enum CopyKind : uint8_t {
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kHostToArray = 3,
  kArrayToHost = 4,
  kArrayToArray = 5,
  kArrayToDevice = 6,
  kDeviceToArray = 7,
  kDeviceToDevice = 8,
  kHostToHost = 9,
  kPeerToPeer = 10,
};

constexpr uint32_t kFlushForced = 1;

// CUpti_CallbackData
struct CallbackData {
  int site;  // 0 at the beginning of a call, 1 at its end
  const char* function;
  const void* parameters;
  void* result;
  const char* symbol;
  Context context;
  uint32_t context_id;
  uint64_t* between;  // the beginning of a call and its end share it
  uint32_t correlation;
};

// CUpti_ResourceData
struct ResourceData {
  Context context;
  void* handle;
  const void* descriptor;
};

// CUpti_GraphData
struct GraphData {
  void* graph;
  void* original_graph;
  GraphNode node;
  GraphNode original_node;
  int node_type;
  GraphNode dependency;
  void* executable;
};

// Records lie packed to 8 bytes.
struct __attribute__((packed, aligned(8))) Record {
  ActivityKind kind;
};

// CUpti_ActivityKernel6 and later
struct __attribute__((packed, aligned(8))) KernelRecord {
  ActivityKind kind;
  uint8_t cache;
  uint8_t shared_memory;
  uint16_t registers;
  int partitioned_requested;
  int partitioned_executed;
  uint64_t start;
  uint64_t end;
  uint64_t completed;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  int32_t grid[3];
  int32_t block[3];
  int32_t static_shared_memory;
  int32_t dynamic_shared_memory;
  uint32_t local_memory_per_thread;
  uint32_t local_memory;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued;
  uint64_t submitted;
  uint8_t launch_type;
  uint8_t carveout_requested;
  uint8_t carveout;
  uint8_t padding;
  uint32_t shared_memory_executed;
  uint64_t graph_node;
};

// CUpti_ActivityMemcpy4 and later
struct __attribute__((packed, aligned(8))) CopyRecord {
  ActivityKind kind;
  uint8_t copy_kind;
  uint8_t source_kind;
  uint8_t target_kind;
  uint8_t flags;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t correlation;
  uint32_t runtime_correlation;
  uint32_t pad;
  void* reserved;
  uint64_t graph_node;
};

// CUpti_ActivityMemcpyPtoP3 and later: copies between devices
struct __attribute__((packed, aligned(8))) PeerCopyRecord {
  ActivityKind kind;
  uint8_t copy_kind;
  uint8_t source_kind;
  uint8_t target_kind;
  uint8_t flags;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t source_device;
  uint32_t source_context;
  uint32_t target_device;
  uint32_t target_context;
  uint32_t correlation;
  void* reserved;
  uint64_t graph_node;
};

// CUpti_ActivityMemset3 and later
struct __attribute__((packed, aligned(8))) SetRecord {
  ActivityKind kind;
  uint32_t value;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t correlation;
  uint16_t flags;
  uint16_t memory_kind;
  uint32_t pad;
  void* reserved;
  uint64_t graph_node;
};

using Callback = void (*)(void* data, Domain domain, uint32_t id, const void* info);
using BufferRequested = void (*)(uint8_t** buffer, size_t* size, size_t* most_records);
using BufferCompleted = void (*)(Context context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);

struct Functions {
  Result (*cuptiGetVersion)(uint32_t*);
  Result (*cuptiGetResultString)(Result, const char**);
  Result (*cuptiSubscribe)(Subscriber*, Callback, void*);
  Result (*cuptiUnsubscribe)(Subscriber);
  Result (*cuptiEnableCallback)(uint32_t, Subscriber, Domain, uint32_t);
  Result (*cuptiActivityRegisterCallbacks)(BufferRequested, BufferCompleted);
  Result (*cuptiActivityEnable)(ActivityKind);
  Result (*cuptiActivityDisable)(ActivityKind);
  Result (*cuptiActivityFlushAll)(uint32_t);
  Result (*cuptiActivityGetNextRecord)(uint8_t*, size_t, Record**);
  Result (*cuptiActivityGetNumDroppedRecords)(Context, uint32_t, size_t*);
  Result (*cuptiGetGraphNodeId)(GraphNode, uint64_t*);
  Result (*cuptiFinalize)();
};

#define LANEWISE_CUPTI_FUNCTIONS(X)                                                                              \
  X(cuptiGetVersion) X(cuptiGetResultString) X(cuptiSubscribe) X(cuptiUnsubscribe) X(cuptiEnableCallback)        \
  X(cuptiActivityRegisterCallbacks) X(cuptiActivityEnable) X(cuptiActivityDisable) X(cuptiActivityFlushAll)      \
  X(cuptiActivityGetNextRecord) X(cuptiActivityGetNumDroppedRecords) X(cuptiGetGraphNodeId) X(cuptiFinalize)

}  // namespace lanewise::cupti
