"""The machine: its memory and its threads."""
