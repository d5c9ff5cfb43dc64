"""report(): one page that needs nothing else, holds the store's numbers, and stays small."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import labelled, no_warnings, planted, write_bare, write_xarray
from PIL import Image

from kmufs_stream import RequestError, Sweep, decompose, report, select, sweep
from kmufs_stream.factors.solving import SOLVERS
from kmufs_stream.reporting.content import ROWS, Result, overlap, read, read_all
from kmufs_stream.results.result import RELATED

K, H = 3, 5
HOSTILE = ["<b>bold</b>", "a & b", '"quoted"', "it's", "$x_1^2$", "\\frac{1}{2}", "雪の名", "${"]
VOID = {"meta", "path", "use", "image", "br", "link", "img"}


class Page(HTMLParser):
    """A page, taken apart: tags are checked to be nested properly."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(self.source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        """All that can be read, white space evened out."""
        return " ".join(" ".join(self.words).split())

    @property
    def drawings(self) -> list[str]:
        """The figures, as SVG."""
        coded = [(image["src"] or "").partition("base64,")[2] for image in self.of("img")]
        return [base64.b64decode(drawing).decode() for drawing in coded]

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A result of every solver, and two that lack something."""
    folder = tmp_path_factory.mktemp("results")
    X = planted(300, 12)
    X[:, 3] = 7.0
    path = write_xarray(folder / "x.zarr", labelled(X), chunks=(50, 12))
    factor = decompose(path, K)
    made = {}
    for solver in SOLVERS:
        made[solver] = folder / f"{solver}.zarr"
        select(path, K, H, solver=solver, factor=factor, out=made[solver], command=f"run {solver}")
    made["only"] = folder / "only.zarr"
    select(path, K, H, factor=factor, out=made["only"], selection_only=True)
    return made


@pytest.fixture(scope="module")
def whole(results: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Page:
    """All of them on one page."""
    return Page(report(list(results.values()), out=tmp_path_factory.mktemp("r") / "r.html").output)


def test_one_result(results: dict[str, Path], tmp_path: Path) -> None:
    with no_warnings():
        done = report(results["admm"], out=tmp_path / "r.html", command="kmufs-stream report 'a b'")
    page = Page(done.output)
    with xr.open_zarr(results["admm"]) as root:
        for label, index, score in zip(
            root["gene"].values, root["feature_index"].values, root["score"].values, strict=True
        ):
            assert label in page.text
            assert re.search(rf"{index} {score:.4f}", page.text)
        attrs = root.attrs
    assert f"{attrs['objective']:.4f}" in page.text
    assert f"of the optimum {attrs['optimum']:.4f}" in page.text
    assert f"{attrs['iterations']} iterations" in page.text
    assert "5 of 12 features for k = 3 from 300 samples, by solver admm" in page.text
    assert "1 excluded" in page.text
    assert attrs["fingerprint"] in page.text
    assert "run admm" in page.text
    assert "kmufs-stream report 'a b'" in page.text
    assert len(page.of("img")) == 5


def test_the_page_loads_nothing(whole: Page) -> None:
    page = whole
    for _, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "data", "srcset", "action"):
            assert re.match(r"#|data:image/svg\+xml;base64,", attrs.get(name) or "#")
    assert not page.of("script")
    assert not page.of("link")
    assert "@import" not in page.source
    assert set(re.findall(r"url\((.)", page.source)) <= {"#"}
    assert "://" not in page.source


def test_figures_can_be_told_apart_and_have_words(whole: Page) -> None:
    page = whole
    for drawing in page.of("img"):
        assert len(drawing["alt"] or "") > 40
    assert len(page.of("figcaption")) == len(page.of("figure"))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for drawing in page.drawings:
        assert set(re.findall(r'(?:url\(|href=")(#|data:|.)', drawing)) <= {"#", "data:"}
    assert "prefers-color-scheme: dark" in page.source
    assert page.of("meta")[1]["content"] == "width=device-width, initial-scale=1"


def test_what_cannot_be_drawn_is_left_out(results: dict[str, Path], whole: Page) -> None:
    assert "Not recorded: made from Python" in whole.text
    # Five of each but two, and where the choices lie.
    assert len(whole.of("img")) == 5 * len(results) - 2 + 1


def test_same_input_same_bytes(results: dict[str, Path], tmp_path: Path) -> None:
    a = report(results["css"], out=tmp_path / "a.html", png=tmp_path / "a.png")
    b = report(results["css"], out=tmp_path / "b.html", png=tmp_path / "b.png")
    assert a.output.read_bytes() == b.output.read_bytes()
    assert a.images[0].read_bytes() == b.images[0].read_bytes()


def test_an_image_says_what_it_shows(results: dict[str, Path], tmp_path: Path) -> None:
    done = report(results["css"], out=tmp_path / "a.html", png=tmp_path / "figures")
    with Image.open(done.images[0]) as image:
        assert "The leading k = 3 components" in image.info["Description"]


def test_an_image_in_the_place_of_the_page_is_refused(
    results: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("a.png", "a"):
        with pytest.raises(RequestError, match="overlaps the output") as caught:
            report(results["css"], out=tmp_path / name, png=tmp_path / "." / name, overwrite=True)
        assert caught.value.code == "outputs_overlap"
    assert not list(tmp_path.iterdir())


def test_coordinates_with_spaces_are_not_drawn(tmp_path: Path) -> None:
    seen = []
    for name in ("quality", "a quality"):
        array = xr.DataArray(planted(90, 8), dims=("s", "f"), name="X")
        array = array.assign_coords({name: (array.dims, np.random.default_rng(0).random((90, 8)))})
        select(array, K, H, out=tmp_path / "x.zarr", overwrite=True)
        found = read(tmp_path / "x.zarr", "x")
        assert isinstance(found, Result)
        assert found.view is not None
        seen.append(found.view.points)
    np.testing.assert_array_equal(*seen)


def test_results_side_by_side(results: dict[str, Path], whole: Page) -> None:
    chosen = read_all([results[solver] for solver in SOLVERS])
    assert all(isinstance(result, Result) for result in chosen)
    some = [result for result in chosen if isinstance(result, Result)]
    found = overlap(some)
    assert found is not None
    assert found.by == "label"
    for i, a in enumerate(some):
        for j, b in enumerate(some):
            both = len(np.intersect1d(a.selected, b.selected))
            assert found.shared[i, j] == both
            assert found.jaccard[i, j] == both / (2 * H - both)
    assert f"{len(results)} selections" in whole.text
    for result in some:
        assert f"{100 * result.of_optimum:.2f}%" in whole.text
        assert f"{result.attrs['objective']:.4f}" in whole.text


def test_results_of_one_name_are_told_apart(results: dict[str, Path]) -> None:
    named = [
        content.name for content in read_all([results["css"], results["css"].parent / "css.zarr"])
    ]
    assert named == [str(results["css"])] * 2
    assert read_all([results["css"]])[0].name == "css.zarr"


def test_overlap_without_labels_goes_by_place_where_tables_match(tmp_path: Path) -> None:
    for name, p in (("a", 8), ("b", 8), ("c", 9)):
        write_bare(tmp_path / name, planted(60, p, seed=p), chunks=(60, p))
        select(tmp_path / name, 2, 3, out=tmp_path / f"{name}.zarr", solver="exact")
    a, b, c = read_all([tmp_path / f"{name}.zarr" for name in "abc"])
    assert isinstance(a, Result)
    assert isinstance(b, Result)
    assert isinstance(c, Result)
    same = overlap([a, b])
    assert same is not None
    assert same.by == "index"
    assert same.shared.tolist() == [[3, 3], [3, 3]]
    assert overlap([a, c]) is None
    page = Page(report([tmp_path / "a.zarr", tmp_path / "c.zarr"], out=tmp_path / "r.html").output)
    assert "Not comparable" in page.text


def test_redundancy_and_view_are_those_of_the_data(results: dict[str, Path]) -> None:
    (result,) = read_all([results["css"]])
    assert isinstance(result, Result)
    with xr.open_zarr(results["css"]) as root:
        X = root["counts"].values
    C = np.corrcoef(X.T)
    assert result.redundancy is not None
    between = np.abs(C[np.triu_indices(H, 1)])
    np.testing.assert_allclose(result.redundancy.mean, between.mean(), rtol=1e-6)
    np.testing.assert_allclose(
        np.sort(result.redundancy.correlation, axis=None), np.sort(C, axis=None), atol=1e-6
    )
    keys = result.keys()
    order = [keys.index(name) for name in result.redundancy.names]
    np.testing.assert_allclose(result.redundancy.correlation, C[np.ix_(order, order)], atol=1e-6)
    values = np.sort(np.linalg.eigvalsh(C))[::-1]
    assert result.view is not None
    np.testing.assert_allclose(result.view.shares, values[:2] / H, rtol=1e-10)
    np.testing.assert_allclose((result.view.points**2).mean(axis=0), values[:2], rtol=1e-10)
    sizes = np.bincount(result.view.clusters)
    assert len(sizes) == K
    assert sizes[0] == sizes.max()


def test_few_rows_of_many_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bare(tmp_path / "x.zarr", planted(50_000, 4), chunks=(500, 4))
    select(tmp_path / "x.zarr", 2, 3, out=tmp_path / "r.zarr", solver="exact")
    seen: list[int] = []
    whole = zarr.Array.__getitem__

    def counted(self: Any, selection: Any) -> Any:
        found = whole(self, selection)
        seen.append(np.size(found) if np.ndim(found) == 2 else 0)
        return found

    monkeypatch.setattr(zarr.Array, "__getitem__", counted)
    (result,) = read_all([tmp_path / "r.zarr"])
    assert isinstance(result, Result)
    assert result.view is not None
    assert len(result.view.points) == ROWS
    assert result.view.of == 50_000
    assert 0 < sum(seen) <= 2 * ROWS * 3


@pytest.mark.parametrize("form", ["csv", "json"])
def test_sweep(tmp_path: Path, form: str) -> None:
    factor, path = decompose(planted(300, 12), K), tmp_path / f"s.{form}"
    found = sweep(factor, [2, 3], [2, 4, 6], solvers=["exact", "css"], csv=tmp_path / "s.csv")
    if form == "json":
        path.write_text(json.dumps(found.summary()))
    done = report(path, out=tmp_path / "r.html")
    page = Page(done.output)
    assert done.sweeps == 1
    assert len(page.of("img")) == 3
    for trial in _last(found):
        assert f"{100 * trial.explained:.2f}%" in page.text
        knee = found.suggested_h[trial.k, trial.solver]
        assert f"{trial.k} {trial.solver} {'none' if knee is None else knee} 6" in page.text


def _last(found: Sweep) -> list[Any]:
    return [trial for trial in found.trials if trial.h == 6]


def test_hostile_labels_stand_as_they_are(tmp_path: Path) -> None:
    array = xr.DataArray(
        planted(80, len(HOSTILE)), dims=("s", "f"), coords={"f": HOSTILE}, name="x"
    )
    path = write_xarray(tmp_path / "x.zarr", array)
    # The name of a result stands inside the figures too.
    places = [tmp_path / "<i>&$a_b$ #0b7a8f", tmp_path / "雪"]
    for place in places:
        select(path, 2, len(HOSTILE), out=place, solver="css", command="a <b> & 'c'")
    with no_warnings():
        done = report(places, out=tmp_path / "r.html", png=tmp_path / "figures")
    page = Page(done.output)
    assert not page.of("b")
    assert not page.of("i")
    for label in HOSTILE:
        assert page.text.count(label) >= 2
    assert "a <b> & 'c'" in page.text
    assert page.text.count("<i>&$a_b$ #0b7a8f") >= 4
    assert any(html.escape("<i>&$a_b$ #0b7a8f") in drawing for drawing in page.drawings)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in done.images)


def test_wide_tables_make_small_pages(tmp_path: Path) -> None:
    p = 100_000
    made = select(planted(40, 30), 2, 5, solver="exact", out=tmp_path / "r.zarr").output
    assert made is not None
    _widen(made, p, h=2000)
    done = report(made, out=tmp_path / "r.html")
    assert done.output.stat().st_size < 1_500_000
    page = Page(done.output)
    assert "2,000 of 100,000 features" in page.text
    assert "The best 300 of 2000" in page.text


def _widen(place: Path, p: int, h: int) -> None:
    """Make of a result one of p features with long names, of which h are chosen."""
    rng = np.random.default_rng(0)
    selected = np.sort(rng.choice(p, h, replace=False))
    scores = rng.random(p)
    root = xr.open_zarr(place)
    attrs = root.attrs | {"h": h, "features": p}
    labels = np.array([f"a rather long name of a feature, number {i}" for i in range(p)], object)
    ranks = np.empty(h, np.int64)
    ranks[np.argsort(-scores[selected])] = np.arange(1, h + 1)
    noted = xr.open_zarr(place, group="diagnostics").load()
    wide = xr.Dataset(
        {"x": (("sample", "feature"), rng.normal(size=(40, h)))},
        coords={
            "feature_index": ("feature", selected),
            "score": ("feature", scores[selected]),
            "rank": ("feature", ranks),
        },
        attrs=attrs,
    )
    chosen = np.isin(np.arange(p), selected)
    every = xr.Dataset(
        {
            "score": ("source_feature", scores),
            "selected": ("source_feature", chosen),
            "excluded": ("source_feature", np.full(p, "", object)),
        },
        coords={"source_feature": labels},
    )
    best = np.flatnonzero(ranks <= RELATED)
    C = np.corrcoef(rng.normal(size=(len(best), 50)))
    noted = noted.drop_vars(["correlation", "related_index"]).assign(
        correlation=(("related", "related_too"), C), related_index=("related", selected[best])
    )
    form: Any = {"zarr_format": 3, "consolidated": False}
    wide.to_zarr(place, mode="w", **form)
    every.to_zarr(place, group="all_features", mode="a", **form)
    noted.to_zarr(place, group="diagnostics", mode="a", **form)


def test_a_result_without_correlations_is_still_shown(tmp_path: Path) -> None:
    select(planted(80, 8), 2, 3, solver="exact", out=tmp_path / "r.zarr")
    group = zarr.open_group(tmp_path / "r.zarr", path="diagnostics")
    for name in ("correlation", "related_index"):
        del group[name]
    zarr.consolidate_metadata(tmp_path / "r.zarr")
    page = Page(report(tmp_path / "r.zarr", out=tmp_path / "r.html").output)
    assert "Redundancy" not in page.text


def _newer(folder: Path) -> Path:
    select(planted(60, 6), 2, 3, solver="exact", out=folder / "newer.zarr")
    zarr.open_group(folder / "newer.zarr").attrs["format_version"] = 99
    zarr.consolidate_metadata(folder / "newer.zarr")
    return folder / "newer.zarr"


def _text(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("make", "code", "named"),
    [
        (lambda d: d / "none", "not_found", "none does not exist"),
        (lambda d: write_bare(d / "x", planted(20, 4)), "not_a_selection", "x"),
        (lambda d: _text(d, "a.csv", "k,h\n1,2\n"), "not_a_sweep", "a.csv"),
        (lambda d: _text(d, "a.json", "[]"), "not_a_sweep", "a.json"),
        (lambda d: _text(d, "a.txt", "x"), "not_a_selection", "a.txt"),
        (_newer, "selection_format", "format 99, this version reads 1"),
    ],
)
def test_other_things_are_refused(
    tmp_path: Path, make: Callable[[Path], Path], code: str, named: str
) -> None:
    with pytest.raises(RequestError) as error:
        report(make(tmp_path), out=tmp_path / "r.html")
    assert error.value.code == code
    assert named in error.value.message
    assert error.value.remedy
    assert not (tmp_path / "r.html").exists()


def test_existing_files_are_kept(results: dict[str, Path], tmp_path: Path) -> None:
    out, folder = _text(tmp_path, "r.html", "mine"), tmp_path / "figures"
    with pytest.raises(RequestError, match="exists"):
        report(results["css"], out=out)
    assert out.read_text() == "mine"
    report(results["css"], out=out, png=folder, overwrite=True)
    names = sorted(file.name for file in folder.iterdir())
    assert names == [
        "01-spectrum.png",
        "02-scores.png",
        "03-redundancy.png",
        "04-view.png",
        "05-convergence.png",
    ]
    with pytest.raises(RequestError, match=r"01-spectrum\.png exists"):
        report(results["css"], out=tmp_path / "other.html", png=folder)
    assert not (tmp_path / "other.html").exists()
    with pytest.raises(RequestError, match="overlaps the input"):
        report(results["css"], out=results["css"] / "r.html", overwrite=True)


def test_libraries_are_named_where_they_are_missing(
    results: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmufs_stream.reporting.find_spec", lambda name: None)
    with pytest.raises(RequestError, match="matplotlib and jinja2") as error:
        report(results["css"], out=tmp_path / "r.html")
    assert error.value.remedy == "Type: pip install matplotlib jinja2"
