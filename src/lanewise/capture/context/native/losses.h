// Everything that was dropped, cut or guessed, counted. Nothing is lost without a number here.
#pragma once

#include <atomic>
#include <cstdint>

namespace lanewise {

using Counter = std::atomic<uint64_t>;

// One writer: a plain add that another thread may read at any time. Costs no locked instruction.
inline void add(Counter& counter, uint64_t amount) {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

// Several writers.
inline void count(Counter& counter, uint64_t amount = 1) { counter.fetch_add(amount, std::memory_order_relaxed); }

#define LANEWISE_LOSSES(X)                                                                   \
  X(truncated)          /* entries of contexts beyond the limit of nodes */                  \
  X(depth_cut)          /* frames left out of the middle of deep stacks, on first sight */   \
  X(stack_overflow)     /* operators nested deeper than the stack of contexts */             \
  X(unlinked_backward)  /* numbered backward functions whose forward operator is unknown */  \
  X(scopes_elsewhere)   /* user scopes that another thread closed */                         \
  X(scopes_out_of_order) /* user scopes closed before one opened inside of them */           \
  X(threads_refused)    /* threads beyond the limit of threads */                            \
  X(names_refused)      /* names beyond the limit of the table of names */                   \
  X(frames_failed)      /* contexts without frames because Python could not be asked */      \
  X(errors)             /* exceptions inside the collector; the first one ends the session */

struct Losses {
#define X(name) Counter name{0};
  LANEWISE_LOSSES(X)
#undef X
  void clear() {
#define X(name) name.store(0);
    LANEWISE_LOSSES(X)
#undef X
  }
};

extern Losses losses;

}  // namespace lanewise
