"""What torch.compile did inside the recording, and what it left out."""
