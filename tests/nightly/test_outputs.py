"""Two writers of one output, and disks that are full: an output is whole, or is what it was."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import begun, ended
from fuzzing import run
from helpers import Bucket, contents
from nightly.tally import Tally, trials
from runs import SELECT, chosen, mounted, write_rows

pytestmark = pytest.mark.filterwarnings("ignore")


def asking(h: int, *more: object) -> list[object]:
    """A selection of so many features from rows."""
    return [h if word == 5 else word for word in SELECT] + [*more]


@pytest.fixture
def alone(
    tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Path]:
    """What a run that nothing disturbs writes, beside rows, in an empty current folder."""
    folder = tmp_path / "alone"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_rows(Path.cwd())

    def written(h: int) -> Path:
        out = folder / f"{h}.zarr"
        if not out.exists():
            folder.mkdir(exist_ok=True)
            assert run(*asking(h), "--out", out)[0] == 0
        return out

    return written


@trials(50, batch=5)
def test_two_writers(
    bucket: Bucket, alone: Callable[[int], Path], tally: Tally, seeds: range
) -> None:
    def trial(seed: int) -> str | None:
        rng = np.random.default_rng(seed)
        local, overwrite = bool(seed % 2), bool(rng.integers(2))
        out = "out.zarr" if local else bucket.at("out.zarr")
        shutil.rmtree("out.zarr", ignore_errors=True)
        for key in bucket.objects():
            bucket.fs.rm_file(f"{bucket.name}/{key}")
        older = overwrite and rng.random() < 0.5
        if older:
            shutil.copytree(alone(4), "out.zarr")
            if not local:
                bucket.put(Path("out.zarr"))
        processes = {}
        for h in (3, 6):
            words = asking(h, "--out", out, *(["--overwrite"] if overwrite else []))
            processes[h] = begun(0, *words, solving=float(rng.uniform(0, 0.1)))
            time.sleep(rng.uniform(0, 0.1))
        runs = {h: ended(process) for h, process in processes.items()}
        won = [h for h, done in runs.items() if done.code == 0]
        for done in runs.values():
            assert done.code in (0, 1, 2)
            assert "Traceback" not in done.err
            assert done.code == 0 or out in done.err, done
        assert overwrite or len(won) == 1
        left = won or [4] * older
        if left:
            assert chosen(out) in [chosen(alone(h)) for h in left]
        places = [path.name for path in Path.cwd().iterdir()] if local else bucket.objects()
        assert {place.partition("/")[0] for place in places} - {"rows.zarr"} == (
            {"out.zarr"} if left else set()
        )
        return None if won else "neither"

    tally("two writers", seeds, trial)


@trials(50, batch=10)
def test_full_disks(
    tmp_path: Path,
    alone: Callable[[int], Path],
    tally: Tally,
    seeds: range,
) -> None:
    def trial(seed: int) -> str | None:
        rng = np.random.default_rng(seed)
        room: dict[str, Any] = {"size": f"{4 * int(rng.integers(1, 200))}k"}
        if rng.random() < 0.3:
            room = {"nr_inodes": int(rng.integers(2, 200))}
        with mounted(tmp_path / "small", **room) as small:
            out, more = small / "out.zarr", []
            if rng.random() < 0.5:
                try:
                    shutil.copytree(alone(4), out)
                except (OSError, shutil.Error):  # so small a disk
                    shutil.rmtree(out, ignore_errors=True)
            if rng.random() < 0.5:
                more = ["--checkpoint", small / "kept"]
            before = contents(small)
            code, answer = run(*asking(5, "--out", out, "--overwrite", *more))
            if code == 0:
                assert chosen(out) == chosen(alone(5))
                return None
            assert "No space left" in answer["error"]["message"], answer
            assert str(small) in answer["error"]["message"], answer
            shutil.rmtree(small / "kept", ignore_errors=True)
            assert contents(small) == before
            return str(answer["error"]["code"])

    tally("full disks", seeds, trial)
