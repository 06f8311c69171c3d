#include "threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "clock.h"

namespace lanewise {

// Never destroyed: other threads may still run when the process ends.
Threads& threads = *new Threads;

thread_local Thread* this_thread __attribute__((tls_model("initial-exec"))) = nullptr;

// Tells when the thread ends.
struct Farewell {
  Thread* thread = nullptr;
  bool over = false;
  bool refused = false;
  ~Farewell() {
    over = true;
    this_thread = nullptr;
    if (thread != nullptr) threads.retire(thread);
    thread = nullptr;
  }
};

static thread_local Farewell farewell;

uint32_t role_of_this_thread() {
  const char* role = "other threads";
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  if (std::strncmp(name, "pt_autograd", 11) == 0)
    role = "autograd threads";
  else if (std::strstr(name, "data_worker") || std::strstr(name, "pin_memory"))
    role = "data loader threads";
  else if (getpid() == static_cast<pid_t>(syscall(SYS_gettid)))
    role = "main thread";
  return names.intern(role)->id;
}

// How long the calling thread has waited for a processor so far, ns; 0 where the system does not say.
static uint64_t processor_wait() {
  static thread_local struct File {
    int number = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ~File() {
      if (number >= 0) close(number);
    }
  } file;
  char text[64] = "";
  if (file.number < 0 || pread(file.number, text, sizeof(text) - 1, 0) <= 0) return 0;
  char* second = nullptr;
  std::strtoull(text, &second, 10);
  return std::strtoull(second, nullptr, 10);
}

void Thread::note_wait(const Node* node, uint64_t spent) {
  // Ticks become nanoseconds and back by what both have counted since the first call.
  static const uint64_t first_tick = ticks(), first_ns = monotonic_ns();
  const uint64_t all = processor_wait(), before = std::exchange(waited, all);
  if (before == 0 || all <= before) return;
  const uint64_t ns = monotonic_ns() - first_ns;
  const double per_ns = ns == 0 ? 1.0 : static_cast<double>(ticks() - first_tick) / static_cast<double>(ns);
  const uint64_t wait = std::min(spent, static_cast<uint64_t>(static_cast<double>(all - before) * per_ns));
  std::lock_guard<std::mutex> lock(waits_mutex);
  if (waits.size() <= node->id) waits.resize(node->id + 1);
  waits[node->id] += wait;
}

void Thread::reset(uint64_t of_session, uint32_t role) {
  session = of_session;
  tree.clear(role);
  depth = beyond = 0;
  stack[0] = Entry{};
  stack[0].node = tree.root();
  stack[0].base = true;
  leaf = nullptr;
  last = 0;
  last_forward = 0;
  forward.id = 0;
  cache.clear();
  for (Counter* counter : {&callbacks, &numbered_backward, &linked_backward, &accumulated})
    counter->store(0, std::memory_order_relaxed);
  elsewhere.clear();
  waited = 0;
  {
    std::lock_guard<std::mutex> lock(waits_mutex);
    waits.clear();
  }
  closed_elsewhere.store(0, std::memory_order_relaxed);
}

Thread* Threads::mine() {
  if (farewell.over || farewell.refused) return nullptr;
  if (farewell.thread != nullptr) return farewell.thread;
  std::lock_guard<std::mutex> lock(mutex_);
  Thread* found = nullptr;
  const uint32_t role = role_of_this_thread();
  for (Thread* thread : all_) {
    if (thread->owned || thread->tree.root()->name != role) continue;
    // What the ended thread had open stays open in no one's stack; its costs remain.
    found = thread;
    found->depth = found->beyond = 0;
    found->last = 0;
    found->waited = 0;
    found->generation = 0;
    found->leaf = nullptr;
    found->busy = false;
    break;
  }
  if (found == nullptr) {
    if (all_.size() >= kMost) {
      count(losses.threads_refused);
      farewell.refused = true;
      return nullptr;
    }
    found = new Thread(static_cast<uint32_t>(all_.size()));
    found->reset(0, role);
    all_.push_back(found);
  }
  found->owned = true;
  found->torch_id.store(0, std::memory_order_relaxed);
  farewell.thread = found;
  return found;
}

void Threads::retire(Thread* thread) {
  std::lock_guard<std::mutex> lock(mutex_);
  thread->owned = false;
}

Thread* Threads::find(uint64_t torch_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Thread* thread : all_)
    if (thread->torch_id.load(std::memory_order_relaxed) == torch_id) return thread;
  return nullptr;
}

}  // namespace lanewise
