"""From a call to a launched kernel: whether it may be taken, with which configuration, at the least cost."""
