"""Matrix products with what surrounds them fused in."""
