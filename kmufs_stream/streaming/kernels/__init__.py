"""What is computed of each block of rows, and how states merge."""
