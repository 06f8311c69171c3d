"""What the ranks of a job do together: matched, how fast, against which ideal, and where it hangs."""
