"""The calling-context collector: a running program -> a tree, aggregated while it runs, light enough to leave on."""
