"""Memory formats: tensors moved between contiguous and channels-last memory, and convolutions computed in the latter."""
