"""Repetitions of published comparisons: a paper's entry, its measurements, its record, and the page of all records."""
