#include "places.h"

#include <unordered_map>

namespace lanewise {

PlacesOptions places;
std::atomic<uint64_t> modules_epoch{0};

namespace {

struct SiteKey {
  const void* code;
  int offset;
  bool operator==(const SiteKey& other) const { return code == other.code && offset == other.offset; }
};

struct SiteHash {
  size_t operator()(const SiteKey& key) const {
    return reinterpret_cast<uintptr_t>(key.code) * UINT64_C(0x9E3779B97F4A7C15) ^ static_cast<size_t>(key.offset);
  }
};

// Guarded by the GIL; never destroyed, because codes are given back by nobody at the end of the process.
std::vector<Site>& sites = *new std::vector<Site>;
std::unordered_map<SiteKey, uint32_t, SiteHash>& site_numbers = *new std::unordered_map<SiteKey, uint32_t, SiteHash>;

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Whether Python may be asked for its lock: a process that is ending must not be.
bool python_runs() {
  if (!Py_IsInitialized()) return false;
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsFinalizing();
#else
  return !_Py_IsFinalizing();
#endif
}

// A call of our own Python code, whose errors are nobody's. nullptr if it fails.
PyObject* called(Thread& thread, PyObject* function, PyObject* one, PyObject* two = nullptr) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  thread.busy = true;
  PyObject* result = PyObject_CallFunctionObjArgs(function, one, two, nullptr);
  thread.busy = false;
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return result;
}

using Loops = std::vector<std::pair<long, long>>;
// By code, which is kept alive by its sites; guarded by the GIL.
std::unordered_map<const void*, Loops>& loops_of_codes = *new std::unordered_map<const void*, Loops>;

Loops read_loops(Thread& thread, PyObject* code) {
  Loops loops;
  PyObject* found = places.loops != nullptr ? called(thread, places.loops, code) : nullptr;
  if (found != nullptr && PyTuple_Check(found)) {
    for (Py_ssize_t at = 0; at + 1 < PyTuple_GET_SIZE(found); at += 2)
      loops.emplace_back(PyLong_AsLong(PyTuple_GET_ITEM(found, at)), PyLong_AsLong(PyTuple_GET_ITEM(found, at + 1)));
    PyErr_Clear();
  } else {
    // Unknown: as if all of it were one loop.
    loops.emplace_back(0, INT32_MAX);
  }
  Py_XDECREF(found);
  return loops;
}

bool is_in_loop(Thread& thread, PyCodeObject* code, int offset) {
  auto found = loops_of_codes.find(code);
  if (found == loops_of_codes.end()) {
    // Python runs here, and may come back to this table.
    Loops loops = read_loops(thread, reinterpret_cast<PyObject*>(code));
    found = loops_of_codes.emplace(code, std::move(loops)).first;
  }
  for (const auto& [begin, end] : found->second)
    if (begin <= offset && offset <= end) return true;
  return false;
}

uint32_t site_number(Thread& thread, const lw_frame& frame) {
  const SiteKey key{frame.code, lw_offset(&frame)};
  const auto found = site_numbers.find(key);
  if (found != site_numbers.end()) return found->second;
  auto* code = reinterpret_cast<PyCodeObject*>(const_cast<void*>(frame.code));
  Py_INCREF(code);
  const bool looped = is_in_loop(thread, code, key.offset);
  const auto [place, is_new] = site_numbers.emplace(key, static_cast<uint32_t>(sites.size()));
  if (is_new) {
    sites.push_back({code, key.offset, looped});
  } else {
    // Another thread was faster, while Python ran.
    Py_DECREF(code);
  }
  return place->second;
}

uint32_t module_name(Thread& thread, const void* module, const void* outermost) {
  auto* object = static_cast<PyObject*>(const_cast<void*>(module));
  std::string text;
  if (places.describe != nullptr) {
    PyObject* name = called(thread, places.describe, object, static_cast<PyObject*>(const_cast<void*>(outermost)));
    if (name != nullptr && PyUnicode_Check(name)) {
      if (const char* utf8 = PyUnicode_AsUTF8(name)) text = utf8;
      else PyErr_Clear();
    }
    Py_XDECREF(name);
  }
  if (text.empty()) {
    count(losses.frames_failed);
    text = Py_TYPE(object)->tp_name;
  }
  return names.intern(text)->id;
}

// The contexts of a walk, made where they are new. The caller holds the GIL.
Node* build(Thread& thread, Node* base, const lw_walk& walk, int begin, const void* outermost) {
  Node* node = base;
  for (int at = walk.count - 1; at >= begin; --at) {
    const lw_frame& frame = walk.frames[at];
    if (walk.left_out > 0 && at == LW_KEEP - 1) {
      count(losses.depth_cut, static_cast<uint64_t>(walk.left_out));
      node = thread.tree.child(node, Kind::kMark, names.intern("<depth>")->id);
    }
    if (frame.self != nullptr) {
      node = thread.tree.child(node, Kind::kModule, module_name(thread, frame.self, outermost));
      continue;
    }
    if (places.raw && !lw_has_begun(&frame)) continue;
    const uint32_t site = site_number(thread, frame);
    node = thread.tree.child(node, Kind::kFrame, site, reinterpret_cast<uintptr_t>(frame.code));
    if (node->kind == Kind::kFrame) node->mark = mark_of_frame(sites[site].offset, sites[site].looped);
  }
  return node;
}

void walk(Thread& thread, lw_activation stop, uint64_t seed) {
  if (places.raw) {
    lw_walk_raw(&places.codes, stop, seed, &thread.walk);
  } else {
    lw_walk_public(&places.codes, stop, seed, &thread.walk);
  }
}

// Where the activation that opened the base has returned: the innermost one of those around it that still runs.
lw_activation next_anchor(Thread& thread, const Entry& base) {
  const size_t depth = static_cast<size_t>(&base - thread.stack);
  if (base.serial != 0 && depth < thread.outer.size()) {
    for (int at = 0; at < thread.walk.count; ++at)
      for (const lw_activation& outer : thread.outer[depth])
        if (outer.frame == thread.walk.frames[at].frame && outer.code == thread.walk.frames[at].code) return outer;
  }
  return {nullptr, nullptr};
}

Node* leaf_of_walk(Thread& thread, Node* base, int begin, uint64_t hash) {
  if (Node* known = thread.tree.find_path(hash)) return known;
  if (nodes_made.load(std::memory_order_relaxed) >= most_nodes.load(std::memory_order_relaxed))
    return thread.tree.child(base, Kind::kMark, names.intern("<truncated>")->id);
  if (!python_runs()) {
    count(losses.frames_failed);
    return base;
  }
  Gil gil;
  const lw_walk found = thread.walk;
  const void* outermost = nullptr;
  bool modules = false;
  for (int at = begin; at < found.count; ++at) modules |= found.frames[at].self != nullptr;
  if (modules) {
    walk(thread, {nullptr, nullptr}, 0);
    for (int at = 0; at < thread.walk.count; ++at)
      if (thread.walk.frames[at].self != nullptr) outermost = thread.walk.frames[at].self;
  }
  const uint64_t epoch = modules_epoch.load(std::memory_order_acquire);
  Node* leaf = build(thread, base, found, begin, outermost);
  // A module may have died while Python ran; then the path is looked at again next time.
  if (epoch == modules_epoch.load(std::memory_order_acquire)) thread.tree.remember_path(hash, leaf);
  return leaf;
}

class MaybeGil {
 public:
  explicit MaybeGil(bool take) : take_(take) {
    if (take_) state_ = PyGILState_Ensure();
  }
  ~MaybeGil() {
    if (take_) PyGILState_Release(state_);
  }
  MaybeGil(const MaybeGil&) = delete;
  MaybeGil& operator=(const MaybeGil&) = delete;

 private:
  bool take_;
  PyGILState_STATE state_{};
};

// Whether this thread runs Python at all, and may be asked where.
bool has_frames() {
  if (!places.frames) return false;
  return places.raw || (python_runs() && PyGILState_GetThisThreadState() != nullptr);
}

void look_at_modules(Thread& thread) {
  const uint64_t epoch = modules_epoch.load(std::memory_order_acquire);
  if (thread.paths_epoch == epoch) return;
  thread.tree.forget_paths();
  thread.paths_epoch = epoch;
}

uint64_t seed_of(const Node* base) { return reinterpret_cast<uintptr_t>(base); }

}  // namespace

const std::vector<Site>& all_sites() { return sites; }

Node* place(Thread& thread, const Entry& base) {
  if (!has_frames()) return base.node;
  MaybeGil gil(!places.raw);
  walk(thread, base.anchor, seed_of(base.node));
  if (base.anchor.frame != nullptr && !thread.walk.reached_stop) {
    const_cast<Entry&>(base).anchor = next_anchor(thread, base);
    walk(thread, base.anchor, seed_of(base.node));
  }
  if (thread.walk.count == 0) return base.node;
  look_at_modules(thread);
  return leaf_of_walk(thread, base.node, 0, thread.walk.hash);
}

Node* place_of_scope(Thread& thread, const Entry& base, Entry& scope) {
  if (!has_frames()) return base.node;
  MaybeGil gil(!places.raw);
  walk(thread, base.anchor, seed_of(base.node));
  int begin = 0;
  for (int at = 0; at < thread.walk.count && at < 4; ++at)
    if (thread.walk.frames[at].code == places.codes.scope_enter) begin = at + 1;
  const size_t depth = static_cast<size_t>(&scope - thread.stack);
  if (thread.outer.size() <= depth) thread.outer.resize(depth + 1);
  auto& outer = thread.outer[depth];
  outer.clear();
  for (int at = begin; at < thread.walk.count; ++at)
    outer.push_back({thread.walk.frames[at].frame, thread.walk.frames[at].code});
  scope.anchor = outer.empty() ? base.anchor : outer.front();
  if (begin >= thread.walk.count) return base.node;
  look_at_modules(thread);
  uint64_t hash = seed_of(base.node) + 1;
  for (int at = begin; at < thread.walk.count; ++at) {
    const lw_frame& frame = thread.walk.frames[at];
    hash = (hash ^ reinterpret_cast<uintptr_t>(frame.instruction)) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ reinterpret_cast<uintptr_t>(frame.self)) * UINT64_C(0xC2B2AE3D27D4EB4F);
    hash ^= hash >> 31;
  }
  return leaf_of_walk(thread, base.node, begin, hash);
}

lw_activation innermost(Thread& thread) {
  const lw_walk& walk = thread.walk;
  return walk.count > 0 ? lw_activation{walk.frames[0].frame, walk.frames[0].code} : lw_activation{nullptr, nullptr};
}

}  // namespace lanewise
