#include "operators.h"

#include <ATen/record_function.h>

#include "clock.h"
#include "places.h"
#include "threads.h"

namespace lanewise {

Losses losses;

namespace {

// Raised at every switch-on, so that threads notice with one comparison; 0 before the first and in a forked child.
std::atomic<uint64_t> generation{0};
std::atomic<uint64_t> session{0};
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

// What a user scope remembers until its end, which another thread may see.
struct ScopeContext : at::ObserverContext {
  ScopeContext(Thread* thread, uint64_t session, uint64_t serial)
      : thread(thread), session(session), serial(serial) {}
  Thread* thread;
  uint64_t session;
  uint64_t serial;
};

// First callback of a thread since the last switch-on.
__attribute__((noinline)) Thread* enter(uint64_t now, uint64_t tick) {
  Thread* thread = threads.mine();
  if (thread == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(threads.mutex());
  const uint64_t current = session.load(std::memory_order_relaxed);
  if (thread->session != current) thread->reset(current, role_of_this_thread());
  thread->torch_id.store(at::RecordFunction::currentThreadId(), std::memory_order_relaxed);
  thread->generation = now;
  // What happened while we were off is nobody's time.
  thread->last = tick;
  this_thread = thread;
  return thread;
}

// Where a thread was between an operator below `a` and one below `b`, both below `base`: in the lowest context above both.
// Two lines of one function are two contexts; between them the thread was in that function, so that the later line stands
// for it. Where the function has no loop that leads from the one to the other, it returned and was entered anew: then the
// thread was where the innermost function around both goes around a loop, as one does that waits for work and hands it on.
Node* between(Node* a, Node* b, const Node* base) {
  Node* under_a = a;
  Node* under_b = b;
  while (a != b) {
    if (a->depth >= b->depth) {
      under_a = a;
      a = a->parent;
    } else {
      under_b = b;
      b = b->parent;
    }
  }
  const bool one_function = under_a != a && under_b != a && under_a->kind == Kind::kFrame &&
                            under_b->kind == Kind::kFrame && under_a->forward == under_b->forward;
  if (!one_function) return a;
  if (is_later(under_a, under_b) || (is_looped(under_a) && is_looped(under_b))) return under_b;
  while (a != base && a->parent != nullptr && !is_looped(a)) a = a->parent;
  return a;
}

// Time since the last event belongs to a context. Time outside of all contexts is not counted.
inline void spend(Thread& thread, Node* node, uint64_t now) {
  const uint64_t spent = now - thread.last;
  if (node->kind != Kind::kRoot) add(node->ticks, spent);
  if (spent > kLongStretch) thread.note_wait(node, spent);
  thread.last = now;
}

// Scopes that another thread closed are taken off the stack, as far as nothing is open inside of them.
__attribute__((noinline)) void close_elsewhere(Thread& thread) {
  std::lock_guard<std::mutex> lock(threads.mutex());
  for (uint64_t serial : thread.elsewhere)
    for (int at = thread.depth; at > 0; --at)
      if (thread.stack[at].serial == serial) thread.stack[at].closed = true;
  thread.elsewhere.clear();
  thread.closed_elsewhere.store(0, std::memory_order_relaxed);
  while (thread.depth > 0 && thread.stack[thread.depth].closed) {
    thread.leaf = thread.stack[thread.depth].leaf;
    --thread.depth;
  }
}

uint64_t forward_operator(Thread& thread, const at::RecordFunction& function) {
  const uint64_t id = function.forwardThreadId();
  if (id != thread.forward.id || thread.forward.thread->torch_id.load(std::memory_order_relaxed) != id) {
    Thread* found = threads.find(id);
    if (found == nullptr) return 0;
    thread.forward.id = id;
    thread.forward.thread = found;
  }
  return thread.forward.thread->tree.find_sequence(function.seqNr());
}

// The context under which an operator opens, and the time before it.
inline Node* arrive(Thread& thread, Entry& top, uint64_t now) {
  if (!top.base) {
    spend(thread, top.node, now);
    return top.node;
  }
  Node* leaf = place(thread, top);
  Node* before = thread.leaf != nullptr ? thread.leaf : leaf;
  spend(thread, leaf == before ? leaf : between(before, leaf, top.node), now);
  thread.leaf = leaf;
  return leaf;
}

// Which child of a context was opened last: of an open one in this activation, of a frame at all.
inline Node*& last_child(Entry& top, Node* parent) { return parent == top.node ? top.last : parent->first; }

inline lw_activation anchor_now(Thread& thread, const Entry& top) {
  return thread.walk.count > 0 ? innermost(thread) : top.anchor;
}

// The engine's evaluation of a function begins before its number is known. Once it is, the evaluation as a whole, with
// its hooks and reductions, belongs to the forward operator; without one it is an operator like others.
__attribute__((noinline)) void settle(Thread& thread, Entry& evaluation, uint64_t forward) {
  if ((evaluation.flags & kAccumulate) != 0 && thread.last_forward != 0 && forward == 0) {
    forward = thread.last_forward;
    add(thread.accumulated, 1);
  }
  Node* parent = evaluation.node;
  Node*& last = last_child((&evaluation)[-1], parent);
  evaluation.node = thread.tree.next_child(parent, last, Kind::kOperator, evaluation.pending, forward);
  evaluation.pending = 0;
  add(evaluation.node->calls, 1);
  thread.leaf = evaluation.node;
}

// Half of a name's hash: never 0.
inline uint32_t spelling(uint64_t hash) { return static_cast<uint32_t>(hash >> 32) | 1; }

// The address of a name that stays: never 0. Names of schemas lie at multiples of eight.
inline uint32_t place_of_name(const char* name) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(name) >> 2) | 1;
}

// Whether the name has its address for as long as the process lives: schemas of torch's own operators are never taken back.
bool stays(const at::RecordFunction& function, std::string_view text) {
  return text.substr(0, 6) == "aten::" && function.operator_name().has_value();
}

// An operator that was looked up is known again by where its name lies, without a look at its letters; by its spelling if
// that may change, or if overloads of it, each with a name of its own, come in turn.
inline void mark(Node& node, const at::RecordFunction& function, std::string_view text, uint64_t hash) {
  const uint32_t here = place_of_name(text.data());
  if (node.mark == here) return;
  node.mark = node.mark == 0 && stays(function, text) ? here : spelling(hash);
}

std::unique_ptr<at::ObserverContext> open_scope(Thread& thread, const at::RecordFunction& function, uint64_t now) {
  Entry& top = thread.stack[thread.depth];
  if (top.pending != 0) settle(thread, top, 0);
  Entry& entry = thread.stack[thread.depth + 1];
  entry = Entry{};
  entry.leaf = thread.leaf;
  entry.base = true;
  Node* parent = top.node;
  if (top.base) {
    parent = place_of_scope(thread, top, entry);
    Node* before = thread.leaf != nullptr ? thread.leaf : parent;
    spend(thread, between(before, parent, top.node), now);
    entry.leaf = parent;
  } else {
    spend(thread, top.node, now);
  }
  const Name* name = names.intern(without_counters(function.name()));
  entry.node = thread.tree.next_child(parent, last_child(top, parent), Kind::kScope, name->id);
  entry.serial = ++thread.serial;
  thread.leaf = entry.node;
  ++thread.depth;
  add(entry.node->calls, 1);
  return std::make_unique<ScopeContext>(&thread, thread.session, entry.serial);
}

// Number of the forward operator of a backward function, or 0.
uint64_t link(Thread& thread, const at::RecordFunction& function) {
  if (function.seqNr() < 0) return 0;
  const uint64_t forward = forward_operator(thread, function);
  add(thread.numbered_backward, 1);
  if (forward != 0) {
    add(thread.linked_backward, 1);
    thread.last_forward = forward;
  } else {
    count(losses.unlinked_backward);
  }
  return forward;
}

// The context of an operator or of a backward function that was not guessed; nullptr for an evaluation of the autograd
// engine, whose `name` is to be remembered.
Node* find_operator(Thread& thread, const at::RecordFunction& function, Node* parent, Node*& last, const char* letters,
                    bool backward, uint64_t forward, NameKey& name) {
  const std::string_view text = letters;
  const uint64_t hash = NameCache::hash_of(text);
  if (!backward)
    if (Node* guess = Tree::guessed(parent, last, spelling(hash))) return guess;
  name = thread.cache.find(text, hash);
  if (backward) return thread.tree.next_child(parent, last, Kind::kBackward, name.id, forward);
  if ((name.flags & kEvaluate) != 0) return nullptr;
  if ((name.flags & kAccumulate) != 0 && thread.last_forward != 0) {
    add(thread.accumulated, 1);
    return thread.tree.next_child(parent, last, Kind::kOperator, name.id, thread.last_forward);
  }
  Node* found = thread.tree.next_child(parent, last, Kind::kOperator, name.id);
  if (name.flags == kPlain && found->kind == Kind::kOperator) mark(*found, function, text, hash);
  return found;
}

void open_operator(Thread& thread, const at::RecordFunction& function, uint64_t now) {
  Entry& top = thread.stack[thread.depth];
  const bool backward = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  uint64_t forward = backward ? link(thread, function) : 0;
  if (__builtin_expect(top.pending != 0, 0)) {
    settle(thread, top, forward);
    forward = 0;
  }
  Node* parent = arrive(thread, top, now);
  const char* const letters = function.name();
  Entry& entry = thread.stack[++thread.depth];
  entry.leaf = thread.leaf;
  entry.serial = 0;
  entry.closed = false;
  entry.pending = 0;
  entry.last = nullptr;
  entry.base = backward;
  Node*& last = last_child(top, parent);
  // What came next last time is in the cache of the processor, where letters and the table of names may not be.
  entry.node = backward ? nullptr : Tree::guessed(parent, last, place_of_name(letters));
  if (entry.node == nullptr) {
    NameKey name{};
    entry.node = find_operator(thread, function, parent, last, letters, backward, forward, name);
    if (entry.node == nullptr) {
      entry.base = true;
      entry.node = parent;
      entry.pending = name.id;
      entry.flags = name.flags;
      entry.anchor = top.base ? anchor_now(thread, top) : top.anchor;
      return;
    }
  }
  if (!backward) {
    const int64_t sequence = function.seqNr();
    if (sequence >= 0) {
      thread.tree.remember_sequence(sequence, entry.node);
      if ((entry.node->flags.load(std::memory_order_relaxed) & kNumbered) == 0)
        entry.node->flags.store(kNumbered, std::memory_order_relaxed);
    }
  }
  if (entry.base) {
    entry.anchor = top.base ? anchor_now(thread, top) : top.anchor;
    thread.leaf = entry.node;
  }
  add(entry.node->calls, 1);
  // What opened inside of it last time comes next, most likely.
  __builtin_prefetch(entry.node->first);
}

std::unique_ptr<at::ObserverContext> started(const at::RecordFunction& function) {
  const uint64_t now = ticks();
  const uint64_t current = generation.load(std::memory_order_relaxed);
  Thread* thread = this_thread;
  if (__builtin_expect(thread == nullptr || thread->generation != current, 0)) {
    if (current == 0) return nullptr;
    thread = enter(current, now);
    if (thread == nullptr) return nullptr;
  }
  if (thread->busy) return nullptr;
  add(thread->callbacks, 1);
  if (__builtin_expect(thread->depth + 1 >= Thread::kDeepest, 0)) {
    ++thread->beyond;
    count(losses.stack_overflow);
    return nullptr;
  }
  try {
    if (__builtin_expect(thread->closed_elsewhere.load(std::memory_order_relaxed) != 0, 0)) close_elsewhere(*thread);
    if (__builtin_expect(function.scope() == at::RecordScope::USER_SCOPE, 0)) return open_scope(*thread, function, now);
    open_operator(*thread, function, now);
  } catch (...) {
    // Out of memory, most likely. What this thread has is given up, because its stack no longer tells the truth.
    count(losses.errors);
    thread->session = thread->generation = 0;
  }
  return nullptr;
}

void close_scope(const ScopeContext& scope, uint64_t now) {
  if (scope.session != session.load(std::memory_order_relaxed)) return;
  Thread* thread = this_thread;
  if (thread != scope.thread) {
    count(losses.scopes_elsewhere);
    std::lock_guard<std::mutex> lock(threads.mutex());
    // A program may close any number of scopes on a thread that has ended.
    if (scope.thread->elsewhere.size() < 4096) scope.thread->elsewhere.push_back(scope.serial);
    scope.thread->closed_elsewhere.store(1, std::memory_order_relaxed);
    return;
  }
  int at = thread->depth;
  while (at > 0 && thread->stack[at].serial != scope.serial) --at;
  // It went with an operator around it that ended first.
  if (at == 0) return;
  if (thread->stack[thread->depth].pending != 0) settle(*thread, thread->stack[thread->depth], 0);
  spend(*thread, thread->stack[thread->depth].node, now);
  thread->stack[at].closed = true;
  if (at != thread->depth) count(losses.scopes_out_of_order);
  while (thread->depth > 0 && thread->stack[thread->depth].closed) {
    thread->leaf = thread->stack[thread->depth].leaf;
    --thread->depth;
  }
}

void ended(const at::RecordFunction& function, at::ObserverContext* context) {
  const uint64_t now = ticks();
  if (generation.load(std::memory_order_relaxed) == 0) return;
  if (function.scope() == at::RecordScope::USER_SCOPE) {
    if (context != nullptr) {
      close_scope(*static_cast<ScopeContext*>(context), now);
    } else if (Thread* thread = this_thread; thread != nullptr && !thread->busy && thread->beyond > 0) {
      --thread->beyond;
    }
    return;
  }
  Thread* thread = this_thread;
  if (thread == nullptr || thread->busy || thread->session != session.load(std::memory_order_relaxed)) return;
  if (__builtin_expect(thread->beyond > 0, 0)) {
    --thread->beyond;
    return;
  }
  Entry* entry = &thread->stack[thread->depth];
  // User scopes that were opened inside and never closed end with the operator.
  while (thread->depth > 0 && entry->serial != 0) entry = &thread->stack[--thread->depth];
  if (thread->depth == 0) return;
  if (__builtin_expect(entry->pending != 0, 0)) settle(*thread, *entry, 0);
  // Of a base, the time since its last operator is its own.
  spend(*thread, entry->node, now);
  __builtin_prefetch(entry->node->next);
  thread->leaf = entry->leaf;
  --thread->depth;
}

}  // namespace

void begin_session() {
  std::lock_guard<std::mutex> lock(threads.mutex());
  losses.clear();
  nodes_made.store(0, std::memory_order_relaxed);
  session.fetch_add(1, std::memory_order_relaxed);
}

void switch_on() {
  if (handle != at::INVALID_CALLBACK_HANDLE) return;
  generation.fetch_add(1, std::memory_order_relaxed);
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(started, ended)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

void switch_off() {
  // The callbacks first: every start that still comes is folded, so that starts and ends stay in pairs.
  if (handle == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

bool is_on() { return handle != at::INVALID_CALLBACK_HANDLE; }

uint64_t session_number() { return session.load(std::memory_order_relaxed); }

void leave_out(uint64_t since) {
  Thread* thread = this_thread;
  if (thread == nullptr || thread->session != session.load(std::memory_order_relaxed)) return;
  const uint64_t now = ticks();
  thread->last = thread->last < since ? thread->last + (now - since) : now;
}

int open_contexts() { return this_thread == nullptr ? 0 : this_thread->depth; }

uint64_t current_context() {
  Thread* thread = this_thread;
  if (thread == nullptr || thread->session != session.load(std::memory_order_relaxed)) return 0;
  const Entry& top = thread->stack[thread->depth];
  // A launch without an operator, as of a Triton kernel, belongs to where the last operator stood: to look at the frames
  // could need the GIL, which no callback of CUPTI may take.
  return thread->tree.reference(top.base && thread->leaf != nullptr ? thread->leaf : top.node);
}

void forget_everything_after_fork() {
  generation.store(0, std::memory_order_relaxed);
  session.store(0, std::memory_order_relaxed);
}

}  // namespace lanewise
