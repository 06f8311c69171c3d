// The threads that run operators: one tree and one stack of open contexts each.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "contexts.h"
#include "frames.h"
#include "names.h"

namespace lanewise {

// An open context. One line of the cache.
struct alignas(64) Entry {
  Node* node = nullptr;
  Node* leaf = nullptr;    // where the thread stood below the enclosing base
  lw_activation anchor{};  // of a base: the innermost Python frame when it was opened
  uint64_t serial = 0;     // of a user scope, else 0
  Node* last = nullptr;    // the child that was opened last
  // Of an evaluation of the autograd engine until it is known which forward operator it belongs to: the number of its name
  // and what the name says, while `node` is the context that it stands in. Else 0.
  uint32_t pending = 0;
  uint8_t flags = 0;
  bool base = false;       // Python may run between it and the operators inside of it
  bool closed = false;     // a user scope that was closed before what is inside of it
};
static_assert(sizeof(Entry) == 64);

struct Thread {
  static constexpr int kDeepest = 512;

  explicit Thread(uint32_t index) : tree(index) {}

  // What every operator changes comes first, and together.
  alignas(64) int depth = 0;  // entries, the root not counted: stack[0] is the root
  int beyond = 0;             // open contexts that did not fit
  uint64_t last = 0;          // tick up to which time has been given to contexts
  Node* leaf = nullptr;       // innermost context below the current base, at the last operator
  uint64_t generation = 0;
  uint64_t session = 0;
  Counter callbacks{0};
  std::atomic<uint32_t> closed_elsewhere{0};  // scopes that other threads closed, in `elsewhere`
  bool busy = false;          // our own Python code runs
  bool owned = true;          // the thread lives
  uint64_t last_forward = 0;  // forward operator of the latest linked backward function
  uint64_t paths_epoch = 0;
  uint64_t serial = 0;
  std::atomic<uint64_t> torch_id{0};
  struct {
    uint64_t id = 0;
    Thread* thread = nullptr;
  } forward;  // the thread that the latest backward functions name
  Counter numbered_backward{0};
  Counter linked_backward{0};
  Counter accumulated{0};
  Tree tree;
  Entry stack[kDeepest];
  NameCache cache;
  lw_walk walk{};
  std::vector<uint64_t> elsewhere;
  // How long the thread had waited for a processor, by Linux, when it was asked last, ns; 0 before. And the part of each
  // context's ticks that was such a wait, read by other threads: `waits_mutex`.
  uint64_t waited = 0;
  std::mutex waits_mutex;
  std::vector<uint64_t> waits;
  std::vector<std::vector<lw_activation>> outer;  // of user scopes: the frames around them, by depth

  // The calling thread has been in one context for so many ticks: what it waited for a processor meanwhile is noted.
  void note_wait(const Node* node, uint64_t spent);
  // Empty everything for another session or owner.
  void reset(uint64_t of_session, uint32_t role);
};

class Threads {
 public:
  static constexpr size_t kMost = 256;

  // The calling thread's own, made or taken over from a thread that has ended; nullptr beyond the limit.
  Thread* mine();
  // The thread that torch numbers so, if it is still known.
  Thread* find(uint64_t torch_id);
  // All of them, also of threads that have ended; the caller holds the mutex.
  const std::vector<Thread*>& everyone() const { return all_; }
  std::mutex& mutex() { return mutex_; }

 private:
  friend struct Farewell;
  void retire(Thread* thread);

  std::mutex mutex_;
  std::vector<Thread*> all_;
};

extern Threads& threads;

// The calling thread's own, once it is known; nullptr before, and after the thread has begun to end.
extern thread_local Thread* this_thread __attribute__((tls_model("initial-exec")));

// A longer stretch in one context may have been a wait for a processor, which the system is then asked about. In ticks:
// 0.1 to 0.4 ms where a tick is a processor's cycle.
constexpr uint64_t kLongStretch = 400000;

// Number of the name of what the calling thread is for.
uint32_t role_of_this_thread();

}  // namespace lanewise
