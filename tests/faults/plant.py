"""Plant each fault of faults.toml in a copy of the checkout, and write down which tests see it.

    python tests/faults/plant.py seen.json [NAME ...]

A fault's tests in ``seen.json`` run first, then those of its room, then all, until some fail.
``seen.json`` keeps what earlier calls have found; compare it before and after tests are changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = {
    "kernels": ["tests/streaming", "tests/factors", "tests/test_decomposition.py"],
    "streaming": ["tests/streaming", "tests/test_decomposition.py", "tests/cli/test_resume.py"],
    "storage": ["tests/storage", "tests/cli/test_s3.py"],
    "factors": ["tests/factors", "tests/test_decomposition.py"],
    "solvers": ["tests/solvers"],
    "sources": ["tests/sources"],
    "results": ["tests/results", "tests/test_selection.py", "tests/streaming/test_cluster.py"],
}


def faults(names: list[str]) -> dict[str, dict[str, str]]:
    rooms = tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))
    found = {f"{room}.{name}": rooms[room][name] for room in rooms for name in rooms[room]}
    return {name: found[name] for name in names or found}


def still_there(test: str) -> bool:
    """Whether the function of a recorded test is where it was."""
    file, _, name = test.partition("::")
    return (ROOT / file).exists() and f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def failing(checkout: Path, tests: list[str]) -> list[str]:
    """Run tests with the packages of a checkout; return those that fail, ten at most."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--maxfail=10", "-rfE", *tests],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'cli'}"},
        capture_output=True,
        text=True,
    )
    if run.returncode not in (0, 1, 2):  # passed, failed, or stopped at the tenth
        raise SystemExit(run.stdout + run.stderr)
    return sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)))


def main() -> None:
    file = Path(sys.argv[1])
    seen: dict[str, list[str]] = json.loads(file.read_text()) if file.exists() else {}
    for name, fault in faults(sys.argv[2:]).items():
        with tempfile.TemporaryDirectory() as folder:
            checkout = Path(folder, "checkout")
            ignored = shutil.ignore_patterns(".git", ".venv", "*cache*", "dist")
            shutil.copytree(ROOT, checkout, ignore=ignored)
            Path(folder, "shared").symlink_to(ROOT.parent / "shared")  # real data, where there are
            source = checkout / "kmufs_stream" / fault["file"]
            text = source.read_text(encoding="utf-8")
            if text.count(fault["old"]) != 1:
                raise SystemExit(f"{name}: its text is not in {fault['file']}, or not once")
            source.write_text(text.replace(fault["old"], fault["new"] or "pass"), encoding="utf-8")
            known = {test.partition("[")[0] for test in seen.get(name, [])}
            first, room = sorted(filter(still_there, known)), ROOMS[name.partition(".")[0]]
            orders = [first, room, []] if first else [room, []]
            seen[name] = next(filter(None, (failing(checkout, tests) for tests in orders)), [])
        file.write_text(json.dumps(seen, indent=1))
        print(f"{name}: {len(seen[name])} {seen[name][:1]}", flush=True)
    unseen = [name for name, tests in seen.items() if not tests]
    print(f"{len(seen) - len(unseen)} of {len(seen)} are seen; not: {', '.join(unseen) or 'none'}")


if __name__ == "__main__":
    main()
