"""Which place of a watched program has become slower while it runs: found from sums at step boundaries."""
