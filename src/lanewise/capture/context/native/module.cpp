// The Python module: begin, on, off, snapshot. Every function runs under the GIL.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>

#include <string>
#include <vector>

#include "clock.h"
#include "device.h"
#include "endings.h"
#include "operators.h"
#include "places.h"
#include "threads.h"

namespace lanewise {
namespace {

PyObject* configure(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* known[] = {"frames", "raw", "module_call", "scope_enter", "describe", "loops",
                                "most_nodes", "steady_counter", nullptr};
  int frames = 1;
  int raw = 1;
  int steady = 0;
  unsigned int most = 200000;
  PyObject* module_call = nullptr;
  PyObject* scope_enter = nullptr;
  PyObject* describe = nullptr;
  PyObject* loops = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "ppOOOOIp", const_cast<char**>(known), &frames, &raw, &module_call,
                                   &scope_enter, &describe, &loops, &most, &steady))
    return nullptr;
  if (is_on()) {
    PyErr_SetString(PyExc_RuntimeError, "a session is running");
    return nullptr;
  }
  places.frames = frames != 0;
  places.raw = raw != 0 && lw_frames_are_raw() != 0;
  // The codes and the function live as long as the process: threads may read them at any time.
  const auto keep = [](PyObject* object) -> PyObject* {
    if (object == Py_None) return nullptr;
    Py_INCREF(object);
    return object;
  };
  places.codes.module_call = keep(module_call);
  places.codes.scope_enter = keep(scope_enter);
  places.describe = keep(describe);
  places.loops = keep(loops);
  most_nodes.store(most < Tree::kMostNodes ? most : Tree::kMostNodes);
  counter_is_steady = steady != 0;
  Py_RETURN_NONE;
}

PyObject* begin(PyObject*, PyObject*) {
  if (is_on()) {
    PyErr_SetString(PyExc_RuntimeError, "a session is running");
    return nullptr;
  }
  begin_session();
  clear_device();
  Py_RETURN_NONE;
}

PyObject* on(PyObject*, PyObject*) {
  switch_on();
  // CUPTI calls back under a lock of its own, so that it is never called with the GIL.
  Py_BEGIN_ALLOW_THREADS;
  note_launches(true);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject* off(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS;
  note_launches(false);
  Py_END_ALLOW_THREADS;
  switch_off();
  Py_RETURN_NONE;
}

PyObject* clock_now(PyObject*, PyObject*) {
  // The pair that was read fastest was disturbed least.
  uint64_t best = ~UINT64_C(0);
  uint64_t tick = 0;
  uint64_t ns = 0;
  for (int i = 0; i < 16; ++i) {
    const uint64_t before = ticks();
    const uint64_t now = monotonic_ns();
    const uint64_t after = ticks();
    if (after - before >= best) continue;
    best = after - before;
    tick = before + best / 2;
    ns = now;
  }
  return Py_BuildValue("KK", static_cast<unsigned long long>(tick), static_cast<unsigned long long>(ns));
}

PyObject* leave_out_since(PyObject*, PyObject* args) {
  unsigned long long since = 0;
  if (!PyArg_ParseTuple(args, "K", &since)) return nullptr;
  leave_out(since);
  Py_RETURN_NONE;
}

PyObject* modules_changed(PyObject*, PyObject*) {
  modules_epoch.fetch_add(1, std::memory_order_acq_rel);
  Py_RETURN_NONE;
}

template <typename T>
PyObject* bytes_of(const std::vector<T>& values) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                   static_cast<Py_ssize_t>(values.size() * sizeof(T)));
}

struct Columns {
  std::vector<uint32_t> parent;  // position within the tree, the root's is its own
  std::vector<uint8_t> kind;
  std::vector<uint8_t> flags;
  std::vector<uint32_t> name;
  std::vector<uint64_t> forward;
  std::vector<uint64_t> calls;
  std::vector<uint64_t> ticks;
};

Columns read(Tree& tree) {
  Columns columns;
  const uint32_t size = tree.size();
  for (uint32_t id = 0; id < size; ++id) {
    const Node& node = *tree.at(id);
    columns.parent.push_back(node.parent != nullptr ? node.parent->id : 0);
    columns.kind.push_back(static_cast<uint8_t>(node.kind));
    columns.flags.push_back(node.flags.load(std::memory_order_relaxed));
    columns.name.push_back(node.name);
    columns.forward.push_back(node.kind == Kind::kFrame ? 0 : node.forward);
    columns.calls.push_back(node.calls.load(std::memory_order_relaxed));
    columns.ticks.push_back(node.ticks.load(std::memory_order_relaxed));
  }
  return columns;
}

unsigned long long value(const Counter& counter) {
  return static_cast<unsigned long long>(counter.load(std::memory_order_relaxed));
}

// What one thread has collected, copied under the lock and without Python: to make objects may run any Python code.
struct Copy {
  uint32_t index;
  Columns columns;
  unsigned long long callbacks;
  unsigned long long numbered;
  unsigned long long linked;
  unsigned long long accumulated;
};

std::vector<Copy> copy_threads() {
  std::vector<Copy> copies;
  std::lock_guard<std::mutex> lock(threads.mutex());
  for (Thread* thread : threads.everyone())
    if (thread->session == session_number())
      copies.push_back({thread->tree.index(), read(thread->tree), value(thread->callbacks),
                        value(thread->numbered_backward), value(thread->linked_backward), value(thread->accumulated)});
  return copies;
}

PyObject* read_threads() {
  const std::vector<Copy> copies = copy_threads();
  PyObject* list = PyList_New(0);
  for (const Copy& copy : copies) {
    const Columns& columns = copy.columns;
    PyObject* one = Py_BuildValue(
        "{s:I,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:K,s:K,s:K,s:K}", "index", copy.index, "parent", bytes_of(columns.parent),
        "kind", bytes_of(columns.kind), "flags", bytes_of(columns.flags), "name", bytes_of(columns.name), "forward",
        bytes_of(columns.forward), "calls", bytes_of(columns.calls), "ticks", bytes_of(columns.ticks), "callbacks",
        copy.callbacks, "numbered_backward", copy.numbered, "linked_backward", copy.linked, "accumulated",
        copy.accumulated);
    if (one == nullptr || list == nullptr || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
    if (list == nullptr) return nullptr;
  }
  return list;
}

PyObject* device_on(PyObject*, PyObject* args) {
  const char* library = nullptr;
  int records = 1;
  if (!PyArg_ParseTuple(args, "s|p", &library, &records)) return nullptr;
  Started started;
  Py_BEGIN_ALLOW_THREADS;
  started = start_device(library, records != 0);
  // It may come when the program first uses the device, which can be in the middle of a session.
  if (started.wrong.empty()) note_launches(is_on());
  Py_END_ALLOW_THREADS;
  return Py_BuildValue("s#O", started.wrong.data(), static_cast<Py_ssize_t>(started.wrong.size()),
                       started.held ? Py_True : Py_False);
}

PyObject* device_off(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS;
  stop_device();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject* device_detach(PyObject*, PyObject*) {
  std::string wrong;
  Py_BEGIN_ALLOW_THREADS;
  wrong = detach_device();
  Py_END_ALLOW_THREADS;
  return PyUnicode_FromStringAndSize(wrong.data(), static_cast<Py_ssize_t>(wrong.size()));
}

PyObject* device_flush(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS;
  flush_device(false);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

unsigned long long wide(uint64_t value) { return static_cast<unsigned long long>(value); }

PyObject* device_captured(PyObject*, PyObject*) {
  const std::vector<CapturedNode> nodes = take_captured();
  PyObject* list = PyList_New(0);
  for (const CapturedNode& node : nodes) {
    PyObject* one = Py_BuildValue("(KII)", wide(node.context), node.kind, node.name);
    if (one == nullptr || list == nullptr || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
    if (list == nullptr) return nullptr;
  }
  return list;
}

// Device work by context, in the order of CollectedLeaf.
PyObject* read_device() {
  const std::vector<Leaf> leaves = read_leaves();
  PyObject* list = PyList_New(0);
  for (const Leaf& leaf : leaves) {
    PyObject* one = Py_BuildValue("(KIIIKKKKKdKKK)", wide(leaf.context), static_cast<unsigned int>(leaf.kind), leaf.name,
                                  leaf.detail, wide(leaf.count), wide(leaf.launches), wide(leaf.total_ns),
                                  wide(leaf.shortest_ns), wide(leaf.longest_ns), leaf.squares, wide(leaf.bytes),
                                  wide(leaf.gap_ns), wide(leaf.idle_ns));
    if (one == nullptr || list == nullptr || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
    if (list == nullptr) return nullptr;
  }
  return list;
}

PyObject* read_device_counts() {
  const DeviceCounts counts = device_counts();
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "kernels", wide(counts.kernels), "others",
                       wide(counts.others), "graphs", wide(counts.graphs), "records", wide(counts.records),
                       "kernel_records", wide(counts.kernel_records), "unmatched", wide(counts.unmatched), "dropped",
                       wide(counts.dropped), "unfinished", wide(counts.unfinished), "graphs_before",
                       wide(counts.graphs_before));
}

PyObject* read_names() {
  const auto texts = names.texts();
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(texts.size()));
  if (list == nullptr) return nullptr;
  Py_ssize_t at = 0;
  for (const std::string& text : texts) {
    PyObject* one = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
    if (one == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, at++, one);
  }
  return list;
}

PyObject* read_sites() {
  const std::vector<Site>& sites = all_sites();
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(sites.size()));
  if (list == nullptr) return nullptr;
  for (size_t at = 0; at < sites.size(); ++at) {
    PyObject* one = Py_BuildValue("Oi", sites[at].code, sites[at].offset);
    if (one == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(at), one);
  }
  return list;
}

PyObject* read_losses() {
  PyObject* dict = PyDict_New();
  if (dict == nullptr) return nullptr;
#define X(name)                                                \
  {                                                            \
    PyObject* number = PyLong_FromUnsignedLongLong(value(losses.name)); \
    PyDict_SetItemString(dict, #name, number);                 \
    Py_XDECREF(number);                                        \
  }
  LANEWISE_LOSSES(X)
#undef X
  return dict;
}

PyObject* snapshot(PyObject*, PyObject*) {
  // Threads first: they may name only what the tables, read afterwards, hold.
  PyObject* all = read_threads();
  if (all == nullptr) return nullptr;
  PyObject* leaves = read_device();
  return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:N}", "threads", all, "leaves", leaves, "device", read_device_counts(),
                       "names", read_names(), "sites", read_sites(), "losses", read_losses());
}

// The part of it that grows with every step: [(index of the thread, calls, ticks, the ticks of them that were waits for a
// processor)], and device work only if asked for.
PyObject* sums(PyObject*, PyObject* args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "p", &device)) return nullptr;
  struct Part {
    uint32_t index;
    std::vector<uint64_t> calls;
    std::vector<uint64_t> ticks;
    std::vector<uint64_t> waits;
  };
  std::vector<Part> parts;
  {
    std::lock_guard<std::mutex> lock(threads.mutex());
    for (Thread* thread : threads.everyone()) {
      if (thread->session != session_number()) continue;
      const uint32_t size = thread->tree.size();
      Part part{thread->tree.index(), std::vector<uint64_t>(size), std::vector<uint64_t>(size), {}};
      for (uint32_t id = 0; id < size; ++id) {
        const Node& node = *thread->tree.at(id);
        part.calls[id] = node.calls.load(std::memory_order_relaxed);
        part.ticks[id] = node.ticks.load(std::memory_order_relaxed);
      }
      {
        std::lock_guard<std::mutex> waiting(thread->waits_mutex);
        part.waits = thread->waits;
      }
      part.waits.resize(size);
      parts.push_back(std::move(part));
    }
  }
  PyObject* list = PyList_New(0);
  for (const Part& part : parts) {
    PyObject* one = Py_BuildValue("(INNN)", part.index, bytes_of(part.calls), bytes_of(part.ticks), bytes_of(part.waits));
    if (one == nullptr || list == nullptr || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
    if (list == nullptr) return nullptr;
  }
  if (!device) return Py_BuildValue("(N[])", list);
  PyObject* leaves = read_device();
  return Py_BuildValue("(NN)", list, leaves);
}

// Frames of this thread as the walk sees them: [(code, offset of the instruction, module or None)], innermost first.
PyObject* frames(PyObject*, PyObject* args) {
  int raw = 1;
  if (!PyArg_ParseTuple(args, "p", &raw)) return nullptr;
  auto walk = std::make_unique<lw_walk>();
  if (raw && lw_frames_are_raw()) {
    lw_walk_raw(&places.codes, {nullptr, nullptr}, 0, walk.get());
  } else {
    lw_walk_public(&places.codes, {nullptr, nullptr}, 0, walk.get());
  }
  PyObject* list = PyList_New(0);
  for (int at = 0; list != nullptr && at < walk->count; ++at) {
    const lw_frame& frame = walk->frames[at];
    auto* code = static_cast<PyObject*>(const_cast<void*>(frame.code));
    auto* self = frame.self != nullptr ? static_cast<PyObject*>(const_cast<void*>(frame.self)) : Py_None;
    PyObject* one = Py_BuildValue("OiO", code, lw_offset(&frame), self);
    if (one == nullptr || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

PyObject* on_now(PyObject*, PyObject*) { return PyBool_FromLong(is_on()); }

PyObject* open_now(PyObject*, PyObject*) { return PyLong_FromLong(open_contexts()); }

PyObject* endings_on_now(PyObject*, PyObject*) {
  endings_on();
  Py_RETURN_NONE;
}

PyObject* endings_off_now(PyObject*, PyObject*) {
  endings_off();
  Py_RETURN_NONE;
}

PyObject* wait_for_ending(PyObject*, PyObject* args) {
  double seconds = 0;
  if (!PyArg_ParseTuple(args, "d", &seconds)) return nullptr;
  int number = 0;
  Py_BEGIN_ALLOW_THREADS;
  number = wait_ending(seconds);
  Py_END_ALLOW_THREADS;
  return PyLong_FromLong(number);
}

PyObject* wake_waiting(PyObject*, PyObject*) {
  wake_ending();
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"configure", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(configure)),
     METH_VARARGS | METH_KEYWORDS, "What to collect and how; while off."},
    {"begin", begin, METH_NOARGS, "A new session with empty trees; while off."},
    {"on", on, METH_NOARGS, "Callbacks on."},
    {"off", off, METH_NOARGS, "Callbacks off; the trees stay."},
    {"clock", clock_now, METH_NOARGS, "(ticks, nanoseconds) of one moment."},
    {"leave_out", leave_out_since, METH_VARARGS, "The calling thread's time since a tick is no context's."},
    {"modules_changed", modules_changed, METH_NOARGS, "A module died: addresses may stand for others."},
    {"device_on", device_on, METH_VARARGS, "Subscribe to the device: ('' or why not, whether another profiler has it); path of CUPTI's library."},
    {"device_flush", device_flush, METH_NOARGS, "Take the device's records that are complete."},
    {"device_off", device_off, METH_NOARGS, "Wait for the device's records and let go of it."},
    {"device_captured", device_captured, METH_NOARGS, "Nodes of graphs captured since the last call: context, kind, name."},
    {"device_detach", device_detach, METH_NOARGS, "Take CUPTI out of the process: '' or why not."},
    {"snapshot", snapshot, METH_NOARGS, "All trees as they are now, as columns."},
    {"sums", sums, METH_VARARGS, "Calls, ticks and waits of all threads, and device work if asked for."},
    {"endings_on", endings_on_now, METH_NOARGS, "Take the signals that would end the process."},
    {"endings_off", endings_off_now, METH_NOARGS, "Give them back; one that came meanwhile ends the process."},
    {"wait_ending", wait_for_ending, METH_VARARGS, "The signal that ends the process, 0 after so many seconds."},
    {"wake_ending", wake_waiting, METH_NOARGS, "Whoever waits for an ending goes on."},
    {"frames", frames, METH_VARARGS, "The calling thread's frames as the walk sees them."},
    {"is_on", on_now, METH_NOARGS, "Whether callbacks are on."},
    {"open_contexts", open_now, METH_NOARGS, "Contexts that the calling thread has open."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "lanewise_context", nullptr, -1, methods,
                          nullptr,               nullptr,            nullptr, nullptr};

}  // namespace
}  // namespace lanewise

PyMODINIT_FUNC PyInit_lanewise_context() {
  static bool forked = false;
  if (!forked) {
    pthread_atfork(nullptr, nullptr, lanewise::forget_everything_after_fork);
    forked = true;
  }
  PyObject* module = PyModule_Create(&lanewise::definition);
  if (module != nullptr) PyModule_AddIntConstant(module, "raw_frames", lw_frames_are_raw());
  return module;
}
