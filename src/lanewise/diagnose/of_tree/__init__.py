"""Diagnoses from a calling-context tree: what contexts and their sums can answer, under the codes of the trace's rules."""
