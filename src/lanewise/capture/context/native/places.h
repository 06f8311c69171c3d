// Where in the program a thread is: Python frames and modules as contexts.
#pragma once

#include <Python.h>

#include "threads.h"

namespace lanewise {

struct PlacesOptions {
  bool frames = true;           // walk Python frames at all
  bool raw = true;              // without the GIL
  lw_codes codes{};             // codes with a meaning of their own
  PyObject* describe = nullptr;  // (module, outermost module) -> name of the module's context
  PyObject* loops = nullptr;     // code -> beginnings and ends of its loops, offsets in bytes
};

// Set under the GIL while no session runs.
extern PlacesOptions places;

// Raised whenever a module dies, so that its address may stand for another one.
extern std::atomic<uint64_t> modules_epoch;

// A line of code that was seen in a stack.
struct Site {
  PyCodeObject* code;  // kept alive, so that its address stays its own
  int offset;          // of the instruction, bytes
  bool looped;         // whether a loop of the code goes around it
};

// All sites by number; the caller holds the GIL.
const std::vector<Site>& all_sites();

// The context below an open base that the calling thread is in.
Node* place(Thread& thread, const Entry& base);

// The context that a user scope is opened in, and the activation that opened it (to be left out below it).
Node* place_of_scope(Thread& thread, const Entry& base, Entry& scope);

// The innermost frame now, as an anchor for what is opened.
lw_activation innermost(Thread& thread);

}  // namespace lanewise
