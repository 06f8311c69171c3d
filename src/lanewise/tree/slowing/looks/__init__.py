"""What is seen of a program at the ends of steps: contexts, what each cost since the last look, a usual step of several."""
