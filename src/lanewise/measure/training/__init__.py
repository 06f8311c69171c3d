"""Parts of a training step: backward and optimizer."""
