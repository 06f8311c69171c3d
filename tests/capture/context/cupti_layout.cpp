// What is declared of CUPTI is what its headers say. Compiled only; KERNEL is the newest record of kernels that they have.
#include <cupti.h>

#include "cupti_abi.h"

namespace ours = lanewise::cupti;

#define SAME(mine, my, theirs, their)                                                                       \
  static_assert(offsetof(ours::mine, my) == offsetof(theirs, their), #mine "." #my);                        \
  static_assert(sizeof(ours::mine::my) == sizeof(theirs::their), #mine "." #my);
#define EQUAL(mine, theirs) static_assert(static_cast<int>(ours::mine) == static_cast<int>(theirs), #mine);

SAME(CallbackData, site, CUpti_CallbackData, callbackSite)
SAME(CallbackData, correlation, CUpti_CallbackData, correlationId)
SAME(ResourceData, descriptor, CUpti_ResourceData, resourceDescriptor)
SAME(GraphData, node, CUpti_GraphData, node)
SAME(GraphData, original_node, CUpti_GraphData, originalNode)

SAME(Record, kind, CUpti_Activity, kind)
SAME(KernelRecord, start, KERNEL, start)
SAME(KernelRecord, end, KERNEL, end)
SAME(KernelRecord, device, KERNEL, deviceId)
SAME(KernelRecord, context, KERNEL, contextId)
SAME(KernelRecord, stream, KERNEL, streamId)
SAME(KernelRecord, correlation, KERNEL, correlationId)
SAME(KernelRecord, name, KERNEL, name)
SAME(KernelRecord, graph_node, KERNEL, graphNodeId)

#define COPY(mine, theirs)                      \
  SAME(mine, copy_kind, theirs, copyKind)       \
  SAME(mine, source_kind, theirs, srcKind)      \
  SAME(mine, target_kind, theirs, dstKind)      \
  SAME(mine, bytes, theirs, bytes)              \
  SAME(mine, start, theirs, start)              \
  SAME(mine, end, theirs, end)                  \
  SAME(mine, device, theirs, deviceId)          \
  SAME(mine, context, theirs, contextId)        \
  SAME(mine, stream, theirs, streamId)          \
  SAME(mine, correlation, theirs, correlationId) \
  SAME(mine, graph_node, theirs, graphNodeId)
COPY(CopyRecord, CUpti_ActivityMemcpy5)
COPY(PeerCopyRecord, CUpti_ActivityMemcpyPtoP4)

SAME(SetRecord, bytes, CUpti_ActivityMemset4, bytes)
SAME(SetRecord, start, CUpti_ActivityMemset4, start)
SAME(SetRecord, end, CUpti_ActivityMemset4, end)
SAME(SetRecord, device, CUpti_ActivityMemset4, deviceId)
SAME(SetRecord, context, CUpti_ActivityMemset4, contextId)
SAME(SetRecord, stream, CUpti_ActivityMemset4, streamId)
SAME(SetRecord, correlation, CUpti_ActivityMemset4, correlationId)
SAME(SetRecord, memory_kind, CUpti_ActivityMemset4, memoryKind)
SAME(SetRecord, graph_node, CUpti_ActivityMemset4, graphNodeId)

EQUAL(kSuccess, CUPTI_SUCCESS)
EQUAL(kMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
EQUAL(kDriver, CUPTI_CB_DOMAIN_DRIVER_API)
EQUAL(kRuntime, CUPTI_CB_DOMAIN_RUNTIME_API)
EQUAL(kResource, CUPTI_CB_DOMAIN_RESOURCE)
EQUAL(kGraphNodeCreated, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED)
EQUAL(kGraphNodeDestroyed, CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING)
EQUAL(kGraphNodeCloned, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
EQUAL(kMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY)
EQUAL(kMemset, CUPTI_ACTIVITY_KIND_MEMSET)
EQUAL(kConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
EQUAL(kMemcpyPeer, CUPTI_ACTIVITY_KIND_MEMCPY2)
EQUAL(kHostToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD)
EQUAL(kDeviceToHost, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH)
EQUAL(kHostToArray, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA)
EQUAL(kArrayToHost, CUPTI_ACTIVITY_MEMCPY_KIND_ATOH)
EQUAL(kArrayToArray, CUPTI_ACTIVITY_MEMCPY_KIND_ATOA)
EQUAL(kArrayToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD)
EQUAL(kDeviceToArray, CUPTI_ACTIVITY_MEMCPY_KIND_DTOA)
EQUAL(kDeviceToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD)
EQUAL(kHostToHost, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH)
EQUAL(kPeerToPeer, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP)
EQUAL(kFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)
static_assert(CUPTI_API_ENTER == 0 && CUPTI_API_EXIT == 1, "sites");

// The functions have the parameters that they are called with, but for the names of types.
#define SHAPE(name) \
  static_assert(sizeof(decltype(&::name)) == sizeof(ours::Functions::name), #name);
LANEWISE_CUPTI_FUNCTIONS(SHAPE)
