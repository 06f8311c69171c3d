// Signals that end the process: whoever waits here is told first, and has a few seconds.
#pragma once

namespace lanewise {

// Takes every signal whose default is to end the process and that nobody handles. Python's own account of handlers
// stays as it is, and whoever sets a handler later replaces this one.
void endings_on();

// Gives them back; a signal that came meanwhile ends the process here.
void endings_off();

// The signal that ends the process, 0 after so many seconds or `wake_ending`. Without the GIL.
int wait_ending(double seconds);

void wake_ending();

}  // namespace lanewise
