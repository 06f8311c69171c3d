// A clock that costs a few nanoseconds. Ticks become nanoseconds when a snapshot is taken.
#pragma once

#include <time.h>

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace lanewise {

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// False where the processor's counter may stop or change its rate; set once, before the first session.
inline bool counter_is_steady = false;

inline uint64_t ticks() {
#if defined(__x86_64__)
  if (counter_is_steady) return __rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
  return monotonic_ns();
}

}  // namespace lanewise
