"""The examples are not installed: import them from the checkout, behind everything installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
