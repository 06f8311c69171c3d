// See frames.h. Compiled as C: the interpreter's own headers are not valid C++ everywhere.
#ifdef LANEWISE_RAW_FRAMES
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
#ifdef LANEWISE_RAW_FRAMES
#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#include "internal/pycore_stackref.h"
#endif
#endif
#include "frames.h"

#define LW_MIX UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t mix(uint64_t hash, const void* value) {
  hash = (hash ^ (uint64_t)(uintptr_t)value) * LW_MIX;
  return hash ^ (hash >> 29);
}

static inline lw_frame* place(lw_walk* walk, int index) {
  if (index < LW_FRAMES) return &walk->frames[index];
  // The outermost frames are kept in a ring in the second half; it is put in order at the end.
  return &walk->frames[LW_KEEP + (index - LW_FRAMES) % LW_KEEP];
}

static void finish(lw_walk* walk, int total) {
  walk->left_out = 0;
  walk->count = total;
  if (total <= LW_FRAMES) return;
  walk->count = LW_FRAMES;
  walk->left_out = total - LW_FRAMES;
  int first = (total - LW_FRAMES) % LW_KEEP;
  if (first == 0) return;
  lw_frame ring[LW_KEEP];
  for (int i = 0; i < LW_KEEP; ++i) ring[i] = walk->frames[LW_KEEP + (first + i) % LW_KEEP];
  for (int i = 0; i < LW_KEEP; ++i) walk->frames[LW_KEEP + i] = ring[i];
}

#ifdef LANEWISE_RAW_FRAMES

#if PY_VERSION_HEX < 0x030D0000
#define FIRST(state) ((state)->cframe->current_frame)
#define INSTRUCTION(frame) ((const void*)(frame)->prev_instr)
#else
#define FIRST(state) ((state)->current_frame)
#define INSTRUCTION(frame) ((const void*)(frame)->instr_ptr)
#endif

#if PY_VERSION_HEX >= 0x030E0000
#define CODE(frame) ((const void*)PyStackRef_AsPyObjectBorrow((frame)->f_executable))
#define LOCAL(frame) ((const void*)PyStackRef_AsPyObjectBorrow((frame)->localsplus[0]))
#define NOT_PYTHON(frame) ((frame)->owner >= FRAME_OWNED_BY_INTERPRETER)
#elif PY_VERSION_HEX >= 0x030D0000
#define CODE(frame) ((const void*)(frame)->f_executable)
#define LOCAL(frame) ((const void*)(frame)->localsplus[0])
// A constructor has a frame of the interpreter's around that of `__init__`, which only its code tells apart.
#define NOT_PYTHON(frame) ((frame)->owner == FRAME_OWNED_BY_CSTACK || _PyFrame_IsIncomplete(frame))
#elif PY_VERSION_HEX >= 0x030C0000
#define CODE(frame) ((const void*)(frame)->f_code)
#define LOCAL(frame) ((const void*)(frame)->localsplus[0])
#define NOT_PYTHON(frame) ((frame)->owner == FRAME_OWNED_BY_CSTACK)
#else
#define CODE(frame) ((const void*)(frame)->f_code)
#define LOCAL(frame) ((const void*)(frame)->localsplus[0])
#define NOT_PYTHON(frame) 0
#endif

int lw_frames_are_raw(void) { return 1; }

void lw_walk_raw(const lw_codes* codes, lw_activation stop, uint64_t seed, lw_walk* walk) {
  uint64_t hash = seed;
  int total = 0;
  walk->reached_stop = 0;
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (state != NULL) {
    _PyInterpreterFrame* frame = FIRST(state);
    for (; frame != NULL; frame = frame->previous) {
      if (frame == stop.frame && CODE(frame) == stop.code) {
        walk->reached_stop = 1;
        break;
      }
      if (NOT_PYTHON(frame)) continue;
      if (total == LW_LONGEST) break;
      lw_frame* kept = place(walk, total++);
      kept->frame = frame;
      kept->code = CODE(frame);
      kept->instruction = INSTRUCTION(frame);
      kept->self = NULL;
      hash = mix(hash, kept->instruction);
      if (kept->code == codes->module_call) {
        kept->self = LOCAL(frame);
        hash = mix(hash, kept->self);
      }
    }
  }
  walk->hash = mix(hash, (const void*)(uintptr_t)total);
  finish(walk, total);
}

int lw_offset(const lw_frame* frame) {
  PyCodeObject* code = (PyCodeObject*)frame->code;
  return (int)((const char*)frame->instruction - (const char*)_PyCode_CODE(code));
}

int lw_has_begun(const lw_frame* frame) { return !_PyFrame_IsIncomplete((_PyInterpreterFrame*)frame->frame); }

#else

int lw_frames_are_raw(void) { return 0; }

void lw_walk_raw(const lw_codes* codes, lw_activation stop, uint64_t seed, lw_walk* walk) {
  (void)codes, (void)stop, (void)seed;
  walk->count = walk->left_out = walk->reached_stop = 0;
  walk->hash = 0;
}

int lw_offset(const lw_frame* frame) {
  return (int)((const char*)frame->instruction - (const char*)frame->code);
}

int lw_has_begun(const lw_frame* frame) {
  (void)frame;
  return 1;
}

#endif

static const void* first_local(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* value = PyFrame_GetVarString(frame, "self");
#else
  PyObject* locals = PyFrame_GetLocals(frame);
  PyObject* value = locals ? PyMapping_GetItemString(locals, "self") : NULL;
  Py_XDECREF(locals);
#endif
  if (value == NULL) {
    PyErr_Clear();
    return NULL;
  }
  // The frame keeps it alive for as long as the walk is used.
  Py_DECREF(value);
  return value;
}

void lw_walk_public(const lw_codes* codes, lw_activation stop, uint64_t seed, lw_walk* walk) {
  uint64_t hash = seed;
  int total = 0;
  walk->reached_stop = 0;
  PyThreadState* state = PyThreadState_Get();
  PyFrameObject* frame = PyThreadState_GetFrame(state);
  while (frame != NULL) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    // The frame holds its code.
    Py_DECREF(code);
    if (frame == stop.frame && code == stop.code) {
      walk->reached_stop = 1;
      break;
    }
    if (total == LW_LONGEST) break;
    lw_frame* kept = place(walk, total++);
    kept->frame = frame;
    kept->code = code;
#ifdef LANEWISE_RAW_FRAMES
    kept->instruction = (const char*)_PyCode_CODE(code) + PyFrame_GetLasti(frame);
#else
    kept->instruction = (const char*)code + PyFrame_GetLasti(frame);
#endif
    kept->self = code == codes->module_call ? first_local(frame) : NULL;
    hash = mix(hash, kept->instruction);
    if (kept->self != NULL) hash = mix(hash, kept->self);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  walk->hash = mix(hash, (const void*)(uintptr_t)total);
  finish(walk, total);
}
