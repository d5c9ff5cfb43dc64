"""This machine: memory, threads."""
