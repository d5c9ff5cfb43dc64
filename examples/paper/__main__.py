"""The experiments of "K-means Derived Unsupervised Feature Selection using Improved ADMM".

    python -m examples.paper SETS... [--figures FOLDER] [--scale quick|default|paper]

SETS are .npz files with X (samples x features) and y (class labels), or folders of them. Prints
tables 3 and 4 with the paper's numbers beside them, and draws figures 2, 3 and 4 into FOLDER.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

try:
    from examples.paper import figures
    from examples.paper.printed import ACCURACY, NMI, printed
    from examples.paper.protocol import SCALES, Best, Judge, Scale, methods
    from examples.paper.sets import Float, Labelled, load
except ModuleNotFoundError as missing:
    print(f'{missing}: pip install ".[report]"', file=sys.stderr)
    sys.exit(2)

Results = dict[str, dict[str, Best]]  # by method, then by set


def compare(sets: Sequence[Labelled], scale: Scale) -> Results:
    """Run every method on every set."""
    results: Results = {}
    for data in sets:
        judge = Judge(data, scale.runs)
        for method, choices in methods(data, scale).items():
            began = time.perf_counter()
            best = judge.best(choices(), scale.sizes)
            results.setdefault(method, {})[data.name] = best
            say(
                f"{data.name}: {method}, ACC / NMI {best.accuracy.mean():.1f} / "
                f"{best.nmi.mean():.1f}, {time.perf_counter() - began:.0f} s"
            )
    return results


def table(
    title: str, results: Results, numbers: dict[str, str], measure: Callable[[Best], Float]
) -> str:
    """Write a Markdown table: methods x sets, mean ± deviation and, in brackets, the paper's."""
    names = list(next(iter(results.values())))
    lines = [f"| {title} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for method, by_set in results.items():
        cells = []
        for name, best in by_set.items():
            found, print_ = measure(best), printed(numbers, name, method)
            cells.append(f"{found.mean():.1f} ± {found.std():.2f}")
            if print_ is not None:
                cells[-1] += f" ({print_})"
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(sets: Sequence[Labelled], scale: Scale, folder: Path) -> None:
    """Draw the three figures for which there are sets, and print what they show."""

    def named(*names: str) -> list[Labelled]:
        return [data for data in sets if data.name.startswith(names)]

    folder.mkdir(parents=True, exist_ok=True)
    for data in named("DNA"):
        quadratic, bilinear = figures.blow_up(data, folder / "figure2.png")
        print(
            f"\nFigure 2: largest ||V||_F in {figures.ITERATIONS} iterations on {data.name}: "
            f"{quadratic.norms.max():.1e} quadratic, {bilinear.norms.max():.3f} bi-linear"
        )
    for data in named("MicroMass"):
        sizes = scale.sizes[:: max(len(scale.sizes) // 2, 1)]
        print(f"\nFigure 3: ACC / NMI in % on {data.name}, h = {', '.join(map(str, sizes))}")
        found = figures.sensitivity(data, sizes, scale.runs, folder / "figure3.png")
        for parameter, by_value in found.items():
            for value, means in by_value.items():
                cells = ", ".join(f"{accuracy:.1f} / {nmi:.1f}" for accuracy, nmi in means)
                print(f"{parameter} = {value:g}: {cells}")
    shown = named("MicroMass", "HARS")
    if shown:
        print(f"\nFigure 4: -Tr(S^T A S) / n at h = {figures.CONVERGENCE_H}")
        for name, course in figures.convergence(shown, folder / "figure4.png").items():
            print(f"{name}: {course[0]:.2f} at first, {course[-1]:.2f} after {len(course)}")


def say(message: str) -> None:
    """Print progress to stderr, apart from the results."""
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    """Print the tables and draw the figures."""
    parser = argparse.ArgumentParser(
        "python -m examples.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sets", type=Path, nargs="+", help=".npz files, or folders of them")
    parser.add_argument("--figures", type=Path, default=Path("figures"), help="folder for figures")
    parser.add_argument("--scale", choices=SCALES, default="default", help="how much is run")
    asked = parser.parse_args()
    scale = SCALES[asked.scale]
    files = [f for path in asked.sets for f in (path.glob("*.npz") if path.is_dir() else [path])]
    if not files:
        parser.error(f"no .npz file in {', '.join(map(str, asked.sets))}")
    if lost := [str(path) for path in files if not path.is_file()]:
        parser.error(f"{', '.join(lost)} not found: give .npz files, or folders of them")
    sets = [load(path, scale.samples) for path in sorted(files, key=lambda path: path.stem)]
    draw(sets, scale, asked.figures)
    results = compare(sets, scale)
    print("\n" + table("Table 3: ACC, %", results, ACCURACY, lambda best: best.accuracy))
    print("\n" + table("Table 4: NMI, %", results, NMI, lambda best: best.nmi))


if __name__ == "__main__":
    main()
