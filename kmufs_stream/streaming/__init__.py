"""Streaming: plan a pass over a matrix, and run a kernel over all its rows."""
