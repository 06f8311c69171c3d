// The Python frames of the calling thread, innermost first, without touching a reference count.
//
// A thread's own chain of frames cannot change while the thread is inside C code, so it may be read without the GIL.
// The layout comes from the headers of the Python that this file is compiled against (frames.c); frame_walk_is_raw says
// whether that was possible. Otherwise the walk goes through the public API and needs the GIL.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Kept of one walk: this many innermost and this many outermost frames.
#define LW_KEEP 64
#define LW_FRAMES (2 * LW_KEEP)
// A walk that is longer than this ends here: endless recursion must not stop the program.
#define LW_LONGEST 20000

typedef struct {
  const void* frame;        // identity of the activation while it runs
  const void* code;         // PyCodeObject*, borrowed
  const void* instruction;  // address of the current instruction, or a substitute for it
  const void* self;         // of a module call: the module, borrowed; else NULL
} lw_frame;

typedef struct {
  int count;         // frames kept, innermost first; the last LW_KEEP are the outermost ones where some were left out
  int left_out;      // frames between the innermost and the outermost ones
  int reached_stop;  // whether the walk ended at the `stop` frame
  uint64_t hash;     // of all frames before `stop`
  lw_frame frames[LW_FRAMES];
} lw_walk;

// Codes with a meaning of their own, set under the GIL before the first walk; NULL where unknown.
typedef struct {
  const void* module_call;  // nn.Module.__call__: its first local is the module
  const void* scope_enter;  // record_function.__enter__: the scope belongs to its caller
} lw_codes;

// 1 if the layout of frames is known and need not be asked for under the GIL.
int lw_frames_are_raw(void);

// An activation, for as long as it runs. The address alone may have been given to another function meanwhile.
typedef struct {
  const void* frame;
  const void* code;
} lw_activation;

// The frames from the innermost up to, not including, the activation `stop`; all of them where `stop.frame` is NULL.
void lw_walk_raw(const lw_codes* codes, lw_activation stop, uint64_t seed, lw_walk* walk);

// The same through the public API. The caller holds the GIL.
void lw_walk_public(const lw_codes* codes, lw_activation stop, uint64_t seed, lw_walk* walk);

// Instruction offset in bytes (as frame.f_lasti) of a kept frame. The caller holds the GIL and the code is alive.
int lw_offset(const lw_frame* frame);

// Of a raw walk: 0 where the function has not come to its first line, as when its frame is still being made. To see that
// takes a look at the code, which is rarely in the cache, so that walks leave such frames in. While the activation runs.
int lw_has_begun(const lw_frame* frame);

#ifdef __cplusplus
}
#endif
