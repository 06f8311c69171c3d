"""Traces of a job -> one summary for each rank: which traces, read where, kept how."""
