"""The walk-throughs run as they are, and their insight is there in small, too."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from examples import embeddings, gridded_climate, single_cell, spectra

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.filterwarnings("ignore:The 'mode.chained_assignment' option")  # anndata on pandas 3.1
def test_single_cell_finds_the_markers(tmp_path: Path) -> None:
    found = single_cell.main(tmp_path, cells=600)
    assert found["markers"] > 0.9  # of all genes 4.5 percent
    assert found["the chosen genes"] > 0.9


def test_spectra_spread_over_the_bands_of_all_minerals(tmp_path: Path) -> None:
    agreement = spectra.main(tmp_path, grains=3000)
    assert agreement["exact"] < 0.7
    assert agreement["css"] > 0.95
    assert agreement["consensus"] > 0.95


def test_few_grid_points_tell_the_weather(tmp_path: Path) -> None:
    scores = gridded_climate.main(tmp_path, days=1200)
    assert scores["the chosen points"] > 0.8


def test_chosen_dimensions_find_more_than_random_ones(tmp_path: Path) -> None:
    recall = embeddings.main(tmp_path, copies=2)
    assert recall["the 16 chosen"] > recall["16 at random"] + 0.05
    assert recall["the 16 chosen"] > 0.75


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.py"))])
def test_what_is_not_installed_is_told_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kmufs_stream", None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert ended.value.code == 2
    assert re.fullmatch(r".+: pip install .+\n", capsys.readouterr().err)
