"""Where bytes lie, whole or not at all."""
