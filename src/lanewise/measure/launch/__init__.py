"""The host's side of device work: dispatch, launches, the queue, and what could be launched as one."""
