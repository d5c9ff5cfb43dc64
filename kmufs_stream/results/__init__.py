"""What was chosen: held, written, read again."""
