"""Routes to the leading components of the standardised data."""
