"""kmufs-stream update: rows that are added to a factor from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import Cli
from helpers import contents, labelled, planted, write_xarray

from kmufs_stream import decompose, load_factor, open_matrix

ARRAY = labelled(np.abs(planted(300, 12)))


@pytest.fixture
def parts(folder: Path) -> Path:
    """Three stores of the same features, and a factor of the first, of log1p of some features."""
    for name, rows in (("a", slice(150)), ("b", slice(150, 220)), ("c", slice(220, None))):
        write_xarray(folder / f"{name}.zarr", ARRAY[rows], chunks=(40, 12))
    return folder


def test_the_factor_grows_where_it_is(cli: Cli, parts: Path) -> None:
    asked = ("--transform", "log1p", "--exclude-features", "gene 3 *", "--missing", "mean")
    assert cli("decompose", "a.zarr", "--k", 3, "--out", "f.zarr", *asked).code == 0
    done = cli("update", "f.zarr", "--with", "b.zarr", "--overwrite", "--json").ok()
    summary = done.json()
    assert (summary["samples"], summary["samples_added"]) == (220, 70)
    assert (summary["output"], summary["passes"]) == ("f.zarr", 1)
    assert summary["excluded"] == {"not_asked": [3]}
    done = cli("update", "f.zarr", "--with", "c.zarr", "--out", "all.zarr")
    assert done.code == 0
    assert "Added 80 samples, decomposed 300 samples x 12 features" in done.words()
    whole = decompose(open_matrix(ARRAY, transform="log1p", exclude_features="gene 3 *"), 3)
    for name, samples in (("f.zarr", 220), ("all.zarr", 300)):
        assert load_factor(name).features.samples == samples
    found = load_factor("all.zarr").singular_values
    np.testing.assert_allclose(found, whole.singular_values, rtol=1e-9)
    assert done.next()[:2] == ["sweep", "all.zarr"]


def test_what_is_refused_leaves_the_factor_alone(cli: Cli, parts: Path) -> None:
    assert cli("decompose", "a.zarr", "--k", 3, "--out", "f.zarr").code == 0
    gaps = ARRAY[220:].copy()
    gaps[3, 4] = np.nan
    write_xarray(parts / "gaps.zarr", gaps)
    before = contents(parts)
    for arguments, said in [
        ("f.zarr --with b.zarr", "The output f.zarr exists. Say --overwrite to replace it"),
        ("f.zarr --with a.zarr --overwrite", "in the factor already"),
        ("f.zarr --with b.zarr --out b.zarr", "overlaps the input b.zarr"),
        ("f.zarr --with b.zarr --where depth>9", "No sample"),
        ("f.zarr --with gaps.zarr --overwrite", "decompose all rows anew. Say --missing"),
        ("f.zarr", "--with"),
        ("a.zarr --with b.zarr", "not a factor"),
    ]:
        assert said in " ".join(cli("update", *arguments.split()).refused().err.split())
    assert contents(parts) == before
    assert cli("decompose", "a.zarr", "--k", 3, "--out", "g.zarr", "--method", "tsqr").code == 0
    done = cli("update", "g.zarr", "--with", "b.zarr", "--out", "h.zarr").refused()
    assert "was made by tsqr" in done.err
    assert "--method gram" in done.err
