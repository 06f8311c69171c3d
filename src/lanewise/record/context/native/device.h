// Device work: kernels, copies and sets, folded into the context that launched them as their records arrive.
//
// Compiled against CUPTI's headers where they are there (LANEWISE_CUPTI); the library itself is opened at run time.
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
  uint64_t total_ns;
  uint64_t shortest_ns;
  uint64_t longest_ns;
  double squares;
  uint64_t bytes;
  uint64_t gap_ns;   // its stream was idle before it
  uint64_t idle_ns;  // its device was idle before it; approximate, as records of streams arrive in no order
};

struct DeviceCounts {
  uint64_t launches = 0;
  uint64_t records = 0;
  uint64_t unmatched = 0;  // records whose launch is unknown
  uint64_t dropped = 0;    // records that the driver dropped
  uint64_t graphs_before = 0;  // records of graphs captured before the start
};

// Subscribe and collect. "" or one sentence why not. The caller does not hold the GIL.
std::string start_device(const char* library);
// Wait for all records and let go. The caller does not hold the GIL.
void stop_device();
// Whether launches are noted: follows the session's on and off.
void note_launches(bool on);
void clear_device();
std::vector<Leaf> read_leaves();
DeviceCounts device_counts();

}  // namespace lanewise
