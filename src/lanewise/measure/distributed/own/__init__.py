"""What each rank works on by itself: host and device time by context, waits and recording left out."""
