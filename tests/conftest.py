"""Beside the tests' own helpers, so that pytest makes them importable from every folder here.

The examples are not installed: they come from the checkout, behind everything that is.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
