"""Damage thousands of small stores and select from each: python tests/benchmarks/fuzz.py [N]

Every run ends in the right answer or in one message; how many ended how is printed. A failure
prints the seed that repeats it.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzzing import survives


def main(count: int) -> int:
    """Run ``count`` seeds; the exit code is the number of failures, at most 1."""
    warnings.simplefilter("ignore")
    ends: Counter[str] = Counter()
    began = time.perf_counter()
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                ends[survives(seed, Path(folder))] += 1
            except Exception as error:
                ends["WRONG"] += 1
                print("; ".join(error.__notes__), "-", type(error).__name__, str(error)[:300])
    print(f"{count} damaged stores in {time.perf_counter() - began:.0f} s")
    for end, times in ends.most_common():
        print(f"  {times:6} {end}")
    return min(ends["WRONG"], 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
