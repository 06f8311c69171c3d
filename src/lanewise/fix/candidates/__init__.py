"""What may be tried: one file per kind of candidate; `catalogue` lists them in the order in which they are tried."""
