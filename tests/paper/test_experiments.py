"""The paper's comparison and figures: protocol, printed numbers, ADMMs and the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import real_data

from examples.paper import __main__ as command
from examples.paper import figures, protocol
from examples.paper.literal_admm import MU_MAX, admm
from examples.paper.sets import Labelled, load
from kmufs_stream.solvers.admm import admm as bilinear_admm


def test_only_the_quadratic_admm_blows_up_on_dna() -> None:
    X, _ = real_data.load("DNA_statlog")
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    _, s, Pt = np.linalg.svd(Z, full_matrices=False)
    A = (Pt[:3].T * s[:3] ** 2) @ Pt[:3]
    quadratic, bilinear = (admm(A, 8, form, iterations=15) for form in ("quadratic", "bi-linear"))
    assert quadratic.norms.max() > 1e9
    np.testing.assert_allclose(bilinear.norms, np.sqrt(8))


def test_the_bi_linear_admm_is_the_library_s(data: Labelled) -> None:
    """At h = k, where the start does not depend on how eigenvectors are completed."""
    factor, k = data.factor, data.k
    P, squares = factor.components[:, :k], factor.singular_values[:k] ** 2
    found = bilinear_admm(P, squares, k, tolerance=0.0, mu0=0.1, mu_max=MU_MAX)
    course = admm((P * squares) @ P.T, k, "bi-linear", iterations=found.iterations)
    assert course.selected.tolist() == found.selected.tolist()


def test_perfect_clusters_score_100_and_the_best_size_is_taken(data: Labelled) -> None:
    judge = protocol.Judge(data, runs=3)
    useful, noise = np.split(np.arange(12), 2)
    assert judge.scores(noise).mean() < 60
    best = judge.best(iter([lambda h: noise, lambda h: useful]), sizes=(6,))
    assert best.accuracy.max() == 100
    assert best.nmi.max() == pytest.approx(100)


def test_every_method_chooses_h_different_features(data: Labelled) -> None:
    scale = replace(protocol.SCALES["quick"], grid=(1.0,))
    for method, choices in protocol.methods(data, scale).items():
        for choice in choices():
            chosen = choice(5)
            expected = data.Z.shape[1] if method == "all features" else 5
            assert len(set(chosen.tolist())) == len(chosen) == expected, method
            assert 0 <= chosen.min() <= chosen.max() < data.Z.shape[1]


def test_the_admm_is_the_paper_s(data: Labelled) -> None:
    """Absolute penalties in the scale of the unnormalised A."""
    options = protocol.paper_options(data)
    assert options.mu0 == pytest.approx(0.1 / len(data.X))
    assert options.mu_max == pytest.approx(1e7 / len(data.X))
    assert options.rho == 1.05


def test_one_command_prints_tables_and_draws_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(2)
    (tmp_path / "other").mkdir()
    names = ("DNA_small.npz", "MicroMass_small.npz", "other/HARS_small.npz")
    sets = [tmp_path / name for name in names]
    for path in sets:
        y = np.arange(60) % 3
        X = rng.standard_normal((60, 52)) + 2 * rng.standard_normal((3, 52))[y]
        np.savez(path, X=X, y=y)
    assert load(sets[0], most=30).X.shape == (30, 52)
    monkeypatch.setitem(protocol.SCALES, "quick", protocol.Scale(None, (50,), 1, (1.0,)))
    for values in ("MU0", "RHO"):
        monkeypatch.setattr(figures, values, (1.1,))
    # A folder and a file by name.
    asked = [str(tmp_path), str(sets[2]), "--scale", "quick"]
    monkeypatch.setattr("sys.argv", ["paper", *asked, "--figures", str(tmp_path / "figures")])
    command.main()
    output = capsys.readouterr().out
    for method in ("NDFS", "RUFS", "EUFS", "SF2SOG", "Laplacian score", "exact", "consensus"):
        assert output.count(f"| {method} |") == 2
    assert "(52.3 ± 5.65)" in output
    assert "(48.4 ± 0.12)" in output
    for number in (2, 3, 4):
        assert (tmp_path / "figures" / f"figure{number}.png").read_bytes()[1:4] == b"PNG"
