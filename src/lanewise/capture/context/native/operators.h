// The session: torch's RecordFunction callbacks on or off, and what they fold into the trees of their threads.
#pragma once

#include <cstdint>

namespace lanewise {

// A new session with empty trees; callbacks are not on yet. Only while they are off.
void begin_session();
// Callbacks on or off. In between, operators cost what they cost without us.
void switch_on();
void switch_off();
bool is_on();

uint64_t session_number();
// Contexts of the calling thread that are open, without the root.
int open_contexts();
// Number of the innermost operator open on the calling thread and its tree, or 0: what a launch belongs to.
uint64_t current_context();

// The calling thread's time since a tick is no context's, whichever gets the rest of the stretch that it lies in.
void leave_out(uint64_t since);

// In a forked child: nothing of ours acts any more. Safe to call in any state.
void forget_everything_after_fork();

}  // namespace lanewise
