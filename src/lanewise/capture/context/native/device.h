// Device work: kernels, copies and sets, folded into the context that launched them as their records arrive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lanewise {

// Costs of one kind of device work in one context.
struct Leaf {
  uint64_t context;  // reference of the context that launched it, or 0 if unknown
  uint8_t kind;      // Kind::kKernel, kCopy or kSet
  uint32_t name;
  uint32_t detail;
  uint64_t count;
  uint64_t launches;  // how many of them were launched one by one, not as a part of a graph
  uint64_t total_ns;
  uint64_t shortest_ns;
  uint64_t longest_ns;
  double squares;
  uint64_t bytes;
  uint64_t gap_ns;   // its stream was idle before it
  uint64_t idle_ns;  // its device was idle before it; approximate, as records of streams arrive in no order
};

struct DeviceCounts {
  uint64_t kernels = 0;         // launched one by one
  uint64_t others = 0;          // calls that copy or set
  uint64_t graphs = 0;          // graphs launched
  uint64_t records = 0;         // of any kind
  uint64_t kernel_records = 0;  // of kernels that were launched one by one
  uint64_t unmatched = 0;       // records whose launch is unknown
  uint64_t dropped = 0;         // records that the driver dropped
  uint64_t unfinished = 0;      // records without times
  uint64_t graphs_before = 0;   // records of graphs captured before the start
};

// A node of a graph as it was captured: what the driver calls a kernel, a copy and a set are 0, 1 and 2.
struct CapturedNode {
  uint64_t context;
  uint32_t kind;
  uint32_t name;  // of the kernel; 0 if unknown
};

struct Started {
  std::string wrong;  // one sentence why not, or ""
  bool held = false;  // because another profiler was first
};

// Subscribe, so that `note_launches` can collect. Nobody who calls these holds the GIL. Without `records` no work of the
// device is reported, and only what is captured into graphs is noted.
Started start_device(const char* library, bool records);
// What was captured since the last call, in its order.
std::vector<CapturedNode> take_captured();
// Take what records there are.
void flush_device(bool all);
// Take all records and let go. The device is idle.
void stop_device();
// Take CUPTI out of the process, and with it whoever has subscribed; after `stop_device`, and while the device is idle. ""
// or why not.
std::string detach_device();
// Whether launches are noted: follows the session's on and off.
void note_launches(bool on);
void clear_device();
std::vector<Leaf> read_leaves();
DeviceCounts device_counts();

}  // namespace lanewise
