"""report(): one page that needs nothing else, holds the store's numbers, and stays small."""

from __future__ import annotations

import base64
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import contents, labelled, no_warnings, planted, write_xarray
from PIL import Image

from kmufs_stream import RequestError, decompose, report, select, sweep
from kmufs_stream.factors.solving import SOLVERS
from kmufs_stream.reporting.content import ROWS, Result, overlap, read_all

K, H = 3, 5
SHOWN = ("admm", "exact", "only")
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
        sources = [str(image["src"]) for image in self.of("img")]
        return [base64.b64decode(source.partition("base64,")[2]).decode() for source in sources]

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A result of every solver, and one without data."""
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
    """Some of them on one page."""
    out = tmp_path_factory.mktemp("r") / "r.html"
    shown = [results[name] for name in SHOWN]
    with no_warnings():
        return Page(report(shown, out=out, command="kmufs-stream report 'a b'").output)


def test_a_page_says_what_its_results_hold(results: dict[str, Path], whole: Page) -> None:
    with xr.open_zarr(results["admm"]) as root:
        for label, index, score in zip(
            root["gene"].values, root["feature_index"].values, root["score"].values, strict=True
        ):
            assert label in whole.text
            assert re.search(rf"{index} {score:.4f}", whole.text)
        attrs = root.attrs
    assert f"of the optimum {attrs['optimum']:.4f}" in whole.text
    assert f"{attrs['iterations']} iterations" in whole.text
    assert "5 of 12 features for k = 3 from 300 samples, by solver admm" in whole.text
    assert "1 excluded" in whole.text
    assert attrs["fingerprint"] in whole.text
    assert "run admm" in whole.text
    assert "kmufs-stream report 'a b'" in whole.text
    # Five figures of each; no steps of exact, no rows of only; and where the choices lie.
    assert len(whole.of("img")) == 5 * len(SHOWN) - 2 + 1
    assert f"{len(SHOWN)} selections" in whole.text
    for result in selections(*(results[name] for name in SHOWN)):
        assert f"{100 * result.of_optimum:.2f}%" in whole.text
        assert f"{result.attrs['objective']:.4f}" in whole.text


def test_the_page_loads_nothing_and_its_figures_have_words(whole: Page) -> None:
    for _, attrs in whole.tags:
        for name in ("src", "href", "xlink:href", "data", "srcset", "action"):
            assert re.match(r"#|data:image/svg\+xml;base64,", attrs.get(name) or "#")
    assert not whole.of("script") + whole.of("link")
    assert "@import" not in whole.source
    assert set(re.findall(r"url\((.)", whole.source)) <= {"#"}
    assert "://" not in whole.source
    for drawing in whole.drawings:
        assert set(re.findall(r'(?:url\(|href=")(#|data:|.)', drawing)) <= {"#", "data:"}
    assert all(len(image["alt"] or "") > 40 for image in whole.of("img"))
    ids = [attrs["id"] for _, attrs in whole.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_files_are_the_same_again_and_replaced_only_if_asked(
    results: dict[str, Path], tmp_path: Path
) -> None:
    css, page, folder = results["css"], tmp_path / "r.html", tmp_path / "figures"
    page.write_text("mine")
    with pytest.raises(RequestError, match="exists"):
        report(css, out=page)
    assert page.read_text() == "mine"
    first = report(css, out=page, png=folder, overwrite=True)
    assert len(first.images) == 5
    with Image.open(first.images[0]) as image:
        assert "The leading k = 3 components" in image.info["Description"]
    with pytest.raises(RequestError, match=r"01-spectrum\.png exists"):
        report(css, out=tmp_path / "other.html", png=folder)
    assert not (tmp_path / "other.html").exists()
    before = contents(folder)
    again = report(css, out=tmp_path / "again.html", png=folder, overwrite=True)
    assert again.output.read_bytes() == page.read_bytes()
    assert contents(folder) == before
    with pytest.raises(RequestError, match="overlaps the output") as caught:
        report(css, out=tmp_path / "a.png", png=tmp_path / "." / "a.png", overwrite=True)
    assert caught.value.code == "outputs_overlap"
    with pytest.raises(RequestError, match="overlaps the input"):
        report(css, out=css / "r.html", overwrite=True)


def selections(*places: Path) -> list[Result]:
    return [content for content in read_all(places) if isinstance(content, Result)]


def test_results_are_compared_by_label(results: dict[str, Path]) -> None:
    some = selections(*results.values())
    assert len(some) == len(results)
    found = overlap(some)
    assert found.by == "label"
    for i, a in enumerate(some):
        for j, b in enumerate(some):
            both = len(np.intersect1d(a.selected, b.selected))
            assert found.shared[i, j] == both
            assert found.jaccard[i, j] == both / (2 * H - both)
    assert [content.name for content in read_all([results["css"]] * 2)] == [str(results["css"])] * 2
    assert read_all([results["css"]])[0].name == "css.zarr"


def test_overlap_without_labels_goes_by_place_where_tables_match(tmp_path: Path) -> None:
    places = [tmp_path / f"{name}.zarr" for name in "abc"]
    for place, p in zip(places, (8, 8, 9), strict=True):
        select(planted(60, p, seed=p), 2, 3, out=place, solver="exact")
        group = zarr.open_group(place, path="diagnostics")
        for name in ("correlation", "related_index"):  # as an earlier version wrote it
            del group[name]
        zarr.consolidate_metadata(place)
    a, b, c = selections(*places)
    same = overlap([a, b])
    assert same.by == "index"
    assert same.shared.tolist() == [[3, 3], [3, 3]]
    assert overlap([a, c]) is None
    page = Page(report(places[1:], out=tmp_path / "r.html").output)
    assert "Not comparable" in page.text
    assert "Redundancy" not in page.text


@pytest.mark.parametrize("method", ["gram", "lanczos"])
def test_redundancy_and_view_are_those_of_the_data(tmp_path: Path, method: str) -> None:
    place = tmp_path / "r.zarr"
    select(labelled(planted(300, 12)), K, H, solver="css", method=method, out=place)
    (result,) = selections(place)
    with xr.open_zarr(place) as root:
        X = root["counts"].values
    C = np.corrcoef(X.T)
    between = np.abs(C[np.triu_indices(H, 1)])
    np.testing.assert_allclose(result.redundancy.mean, between.mean(), rtol=1e-6)
    np.testing.assert_allclose(
        np.sort(result.redundancy.correlation, axis=None), np.sort(C, axis=None), atol=1e-6
    )
    keys = result.keys()
    order = [keys.index(name) for name in result.redundancy.names]
    np.testing.assert_allclose(result.redundancy.correlation, C[np.ix_(order, order)], atol=1e-6)
    values = np.sort(np.linalg.eigvalsh(C))[::-1]
    np.testing.assert_allclose(result.view.shares, values[:2] / H, rtol=1e-10)
    np.testing.assert_allclose((result.view.points**2).mean(axis=0), values[:2], rtol=1e-10)
    sizes = np.bincount(result.view.clusters)
    assert len(sizes) == K
    assert sizes[0] == sizes.max()


def test_few_rows_of_many_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    select(planted(50_000, 4), 2, 3, out=tmp_path / "r.zarr", solver="exact")
    seen: list[int] = []
    whole = zarr.Array.__getitem__

    def counted(self: Any, selection: Any) -> Any:
        found = whole(self, selection)
        seen.append(np.size(found) if np.ndim(found) == 2 else 0)
        return found

    monkeypatch.setattr(zarr.Array, "__getitem__", counted)
    (result,) = selections(tmp_path / "r.zarr")
    assert len(result.view.points) == ROWS
    assert result.view.of == 50_000
    assert 0 < sum(seen) <= 2 * ROWS * 3


def test_sweeps(tmp_path: Path) -> None:
    factor, files = decompose(planted(300, 12), K), [tmp_path / "s.csv", tmp_path / "s.json"]
    found = sweep(factor, [2, 3], [2, 4, 6], solvers=["exact", "css"], csv=files[0])
    files[1].write_text(json.dumps(found.summary()))
    done = report(files, out=tmp_path / "r.html")
    page = Page(done.output)
    assert done.sweeps == 2
    assert len(page.of("img")) == 6
    for trial in found.trials:
        if trial.h == 6:
            assert page.text.count(f"{100 * trial.explained:.2f}%") >= 2
            knee = found.suggested_h[trial.k, trial.solver] or "none"
            assert page.text.count(f"{trial.k} {trial.solver} {knee} 6") == 2


def test_hostile_labels_stand_as_they_are(tmp_path: Path) -> None:
    array = xr.DataArray(planted(80, 8), dims=("s", "f"), coords={"f": HOSTILE}, name="x")
    # The name of a result stands inside the figures too.
    places = [tmp_path / "<i>&$a_b$ #0b7a8f", tmp_path / "雪"]
    for place in places:
        select(array, 2, 8, out=place, solver="exact", command="a <b> & 'c'")
    with no_warnings():
        done = report(places, out=tmp_path / "r.html", png=tmp_path / "all.png")
    page = Page(done.output)
    assert not page.of("b")
    assert not page.of("i")
    for label in HOSTILE:
        assert page.text.count(label) >= 2
    assert "a <b> & 'c'" in page.text
    assert page.text.count("<i>&$a_b$ #0b7a8f") >= 4
    assert any(html.escape("<i>&$a_b$ #0b7a8f") in drawing for drawing in page.drawings)
    (image,) = done.images
    assert image.read_bytes().startswith(b"\x89PNG")


def test_wide_tables_make_small_pages(tmp_path: Path) -> None:
    p = 20_000
    names = [f"a rather long name of a feature, number {i}" for i in range(p)]
    array = xr.DataArray(planted(40, p), dims=("s", "f"), coords={"f": names}, name="x")
    select(array, 2, 600, solver="exact", out=tmp_path / "r.zarr")
    done = report(tmp_path / "r.zarr", out=tmp_path / "r.html")
    assert done.output.stat().st_size < 1_500_000
    page = Page(done.output)
    assert "600 of 20,000 features" in page.text
    assert "The best 300 of 600" in page.text


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("none", None, "not_found"),
        ("a.csv", "k,h\n1,2\n", "not_a_sweep"),
        ("a.json", "[]", "not_a_sweep"),
        ("a.txt", "x", "not_a_selection"),
    ],
)
def test_other_things_are_refused(tmp_path: Path, name: str, text: str | None, code: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(RequestError, match=name) as error:
        report(tmp_path / name, out=tmp_path / "r.html")
    assert error.value.code == code
    assert error.value.remedy
    assert not (tmp_path / "r.html").exists()


def test_libraries_are_named_where_they_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kmufs_stream.reporting.find_spec", lambda name: None)
    with pytest.raises(RequestError, match="matplotlib and jinja2"):
        report("any.zarr", out="r.html")
