"""What a file proves about its own code: names, values, purity, optimizers."""
