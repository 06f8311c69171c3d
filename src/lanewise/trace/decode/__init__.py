"""From bytes of rows to columns.

rows.py       typed rows, and the lenient way to make one from odd but valid JSON
columns.py    rows of one chunk -> a batch of arrays with ids of its own
interning.py  texts -> small integers
times.py      microseconds -> nanoseconds without loss
assemble.py   batches, in file order -> the tables of `schema.TABLES`
worker.py     the same decoding in a second process
"""
