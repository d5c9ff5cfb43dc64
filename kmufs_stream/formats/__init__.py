"""Foreign formats, one per module, each read by a library that knows it, as blocks of rows."""
