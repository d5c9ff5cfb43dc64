"""Figures 2, 3 and 4, as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from examples.paper.literal_admm import Course, admm
from examples.paper.protocol import Judge, by_solver, paper_options
from examples.paper.sets import Float, Labelled
from kmufs_stream import select

MU0 = (1e-6, 1e-3, 1.0, 1e3, 1e6)
RHO = (1.0001, 1.01, 1.1, 10.0, 100.0)
ITERATIONS, BLOW_UP_H = 80, 8
CONVERGENCE_H = 50


def blow_up(data: Labelled, path: Path) -> tuple[Course, Course]:
    """Draw figure 2: log10 ||V||_F of the quadratic and the bi-linear ADMM, by iteration."""
    factor = data.factor
    P, squares = factor.components[:, : data.k], factor.singular_values[: data.k] ** 2
    A = (P * squares) @ P.T
    quadratic, bilinear = (
        admm(A, BLOW_UP_H, form, iterations=ITERATIONS) for form in ("quadratic", "bi-linear")
    )
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(np.log10(quadratic.norms), "b", label="quadratic ADMM")
    axes.plot(np.log10(bilinear.norms), "r", label="bi-linear ADMM")
    axes.set(
        xlabel="iteration", ylabel=r"$\log_{10} \|V\|_F$", title=f"{data.name}, h = {BLOW_UP_H}"
    )
    axes.legend()
    figure.savefig(path, dpi=150)
    return quadratic, bilinear


def sensitivity(
    data: Labelled, sizes: Sequence[int], runs: int, path: Path
) -> dict[str, dict[float, Float]]:
    """Draw figure 3: mean accuracy and NMI, by mu0 at rho = 1.05 and by rho at mu0 = 0.1.

    Returns (len(sizes), 2) means in percent, by ``mu0`` or ``rho`` and then by value.
    """
    judge = Judge(data, runs)

    def means(mu0: float, rho: float) -> Float:
        choose = by_solver(data, "admm", paper_options(data, mu0, rho))
        return np.array([judge.scores(choose(h)).mean(axis=0) for h in sizes])

    found = {
        "mu0": {mu0: means(mu0, 1.05) for mu0 in MU0},
        "rho": {rho: means(0.1, rho) for rho in RHO},
    }
    figure = Figure(figsize=(8, 6), layout="constrained")
    panels = figure.subplots(2, 2)
    labels = {"mu0": r"$\mu^0$ ($\rho = 1.05$)", "rho": r"$\rho$ ($\mu^0 = 0.1$)"}
    for row, (name, by_value) in zip(panels, found.items(), strict=True):
        for i, (axes, measure) in enumerate(zip(row, ("ACC", "NMI"), strict=True)):
            for j, h in enumerate(sizes):
                axes.plot([m[j, i] for m in by_value.values()], "o-", label=f"h = {h}")
            axes.set_xticks(range(len(by_value)), [f"{value:g}" for value in by_value])
            axes.set(xlabel=labels[name], ylabel=f"{measure}, %", title=data.name)
    panels[0, 0].legend()
    figure.savefig(path, dpi=150)
    return found


def convergence(sets: Sequence[Labelled], path: Path) -> dict[str, Float]:
    """Draw figure 4: the objective of the chosen rows, by iteration. Returns it by set."""
    figure = Figure(figsize=(4 * len(sets), 3.5), layout="constrained")
    found = {}
    for axes, data in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        options = paper_options(data)
        course = select(data.X, data.k, CONVERGENCE_H, options=options, factor=data.factor)
        found[data.name] = -course.solution.history["objective"]
        axes.plot(found[data.name])
        axes.axhline(-course.optimum, color="grey", linestyle="--", label="optimum")
        axes.set(xlabel="iteration", ylabel=r"$-\mathrm{Tr}(S^T A S) / n$", title=data.name)
        axes.legend()
    figure.savefig(path, dpi=150)
    return found
