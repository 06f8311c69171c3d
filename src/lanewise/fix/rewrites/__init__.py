"""What is replaced in a program's graph before the compiler generates code for it."""
