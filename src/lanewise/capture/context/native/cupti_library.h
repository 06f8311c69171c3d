// CUPTI's library, opened at run time, and the calls of the program that it tells us of.
#pragma once

#include <string>

#include "cupti_abi.h"

namespace lanewise::cupti {

// Every function of the library; valid once `open_library` returned "".
extern Functions& functions;

// Opens the one that the process has mapped, else `path`. "" or one sentence why not.
std::string open_library(const char* path);

// What a result means.
std::string describe(Result result);

// What a call of the program puts on the device.
enum class Work : uint8_t { kNone, kKernel, kCopyOrSet, kGraph };

// Of the call with this number in the runtime's or the driver's domain.
Work work_of(Domain domain, uint32_t id);

// Asks for the calls that put work on the device, and for graphs. "" or why not.
std::string enable_calls(Subscriber subscriber);

}  // namespace lanewise::cupti
