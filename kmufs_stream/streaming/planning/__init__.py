"""What a pass will read and take, decided before it starts."""
