"""Labels whose chunks are cut off, or say other lengths, are told by their chunk, never misread."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs
from helpers import chunk_files, planted, write_bare
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.dtype import VariableLengthBytes
from zarr.storage import MemoryStore

from kmufs_stream import BrokenError, RequestError, open_matrix, select
from kmufs_stream.sources.labels import class_codes
from kmufs_stream.storage.retrying import CheckedStore

NAMES = np.array(["geneA", "g", "é", "", "abc"], dtype=object)
COMPRESSORS: dict[int, list[Any]] = {
    2: [numcodecs.Zstd(), numcodecs.GZip(), numcodecs.Blosc()],
    3: [zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec()],
}
BLOSC = {form: compressors[2] for form, compressors in COMPRESSORS.items()}


@pytest.fixture(params=[2, 3])
def form(request: Any) -> int:
    return int(request.param)


def store(path: Path, form: int, labels: Any, compressor: Any, names: Any = object) -> Path:
    """A table with labels of its features and names of its samples."""
    cells = np.array([f"cell {i}" for i in range(20)], dtype=names)
    dataset = xr.Dataset(
        {"counts": (("cell", "gene"), planted(20, 5))}, coords={"gene": labels, "cell": cells}
    )
    encoding = {name: {"compressors": compressor} for name in ("gene", "cell")}
    options: Any = {"zarr_format": form, "consolidated": False, "encoding": encoding}
    dataset.to_zarr(path, **options)
    return path


def damages(whole: bytes) -> list[bytes]:
    """A chunk of items, cut off at each byte, or with another of its counts and lengths."""
    found, at = [whole[:cut] for cut in range(len(whole))], 4
    places = [0]
    while at < len(whole):
        places.append(at)
        at += 4 + int.from_bytes(whole[at : at + 4], "little")
    for place in places:
        known = int.from_bytes(whole[place : place + 4], "little")
        for other in {0, known - 1, known + 1, known ^ 2**20, 2**31 - 1, 2**32 - 1} - {known, -1}:
            found.append(whole[:place] + other.to_bytes(4, "little") + whole[place + 4 :])
    return [*found, whole + b"\0"]


@pytest.mark.parametrize("codec", [numcodecs.VLenUTF8(), numcodecs.VLenBytes()])
def test_items_that_do_not_add_up_are_told_before_they_are_decoded(form: int, codec: Any) -> None:
    items = NAMES if codec.codec_id == "vlen-utf8" else np.array([b"gene", b"", b"x"], object)
    dtype: Any = "str" if codec.codec_id == "vlen-utf8" else VariableLengthBytes()
    kept = MemoryStore()
    array = zarr.create_array(
        kept, name="gene", shape=items.shape, dtype=dtype, zarr_format=form, compressors=None
    )
    array[:] = items
    key = "gene/c/0" if form == 3 else "gene/0"
    kind = default_buffer_prototype()
    whole = sync(kept.get(key, kind))
    assert whole is not None
    watched = CheckedStore(kept, [array])
    np.testing.assert_array_equal(zarr.open_array(watched, path="gene", mode="r")[:], items)
    for damaged in damages(whole.to_bytes()):
        sync(kept.set(key, kind.buffer.from_bytes(damaged)))
        with pytest.raises(BrokenError, match=key) as caught:
            sync(watched.get(key, kind))
        assert caught.value.chunk == key.removeprefix("gene/")


@pytest.mark.parametrize("names", [object, "U7"], ids=["variable", "fixed"])
def test_names_of_samples_are_told_wherever_they_are_read(
    tmp_path: Path, form: int, names: Any
) -> None:
    path = store(tmp_path / "data.zarr", form, NAMES, None, names)
    chunk = chunk_files(path / "cell")[0]
    chunk.write_bytes(chunk.read_bytes()[:-1])
    told = f"chunk cell/.* of {path} has" if names is object else f"chunk .* of {path}/cell cannot"
    with pytest.raises(BrokenError, match=told):
        select(path, 2, 3, out=tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()
    with pytest.raises(BrokenError, match=told):
        open_matrix(path, where="cell != 'cell 3'")
    with pytest.raises(BrokenError, match=told):
        class_codes("cell", [open_matrix(path)])


@pytest.mark.parametrize("which", range(3))
def test_compressed_text_that_counts_wrongly_is_told_before_memory_is_taken(
    tmp_path: Path, form: int, which: int
) -> None:
    path = store(tmp_path / "data.zarr", form, NAMES, COMPRESSORS[form][which])
    chunk, codec = chunk_files(path / "gene")[0], COMPRESSORS[2][which]
    whole = chunk.read_bytes()
    plain = bytes(codec.decode(whole))
    chunk.write_bytes(codec.encode((2**31 - 1).to_bytes(4, "little") + plain[4:]))
    tracemalloc.start()
    with pytest.raises(BrokenError, match=r"chunk gene/.* does not hold 5 items"):
        open_matrix(path)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    chunk.write_bytes(whole)
    assert open_matrix(path).labels.tolist() == NAMES.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "sound", "damaged", "told"),
    [
        ("O", "é".encode(), b"\xf8\xf8", r"chunk .*0 of .*/gene cannot be read: Unicode"),
        ("U5", "é".encode("utf-32-le"), b"\0\xd8\0\0", "number 2 of 'gene' is not text"),
    ],
)
def test_labels_that_are_no_text_are_told_where_they_are(
    tmp_path: Path, form: int, kind: str, sound: bytes, damaged: bytes, told: str
) -> None:
    path = store(tmp_path / "data.zarr", form, NAMES.astype(kind), None)
    chunk = chunk_files(path / "gene")[0]
    chunk.write_bytes(chunk.read_bytes().replace(sound, damaged))
    with pytest.raises(BrokenError, match=told):
        open_matrix(path)


@pytest.mark.parametrize(("kind", "which"), [("O", 0), ("O", 2), ("U8", 1), ("U8", 2)])
@pytest.mark.parametrize("whose", ["gene", "cell"])
def test_damage_to_compressed_labels_names_array_and_chunk(
    tmp_path: Path, form: int, which: int, kind: str, whose: str
) -> None:
    path = store(tmp_path / "data.zarr", form, NAMES.astype(kind), COMPRESSORS[form][which], kind)
    chunk = chunk_files(path / whose)[0]
    whole, key = chunk.read_bytes(), chunk.relative_to(path / whose).as_posix()
    cuts = (1, 15, 16, len(whole) // 2, len(whole) - 1)
    for damaged in [*(whole[:cut] for cut in cuts), b"nonsense" * 9]:
        chunk.write_bytes(damaged)
        with pytest.raises(BrokenError) as caught:
            class_codes("cell", [open_matrix(path)])
        assert (caught.value.code, caught.value.chunk) == ("corrupt_chunk", key)
        for named in (whose, key, str(path)):
            assert named in caught.value.message


def test_tables_of_anndata(tmp_path: Path, form: int) -> None:
    pytest.importorskip("anndata")
    from sources.anndata_stores import annotated, write_zarr2, write_zarr3

    place = {2: write_zarr2, 3: write_zarr3}[form](annotated(planted(20, 5)), tmp_path / "a")
    for table in ("obs", "var"):
        path = place / table / "both"
        column = zarr.open_array(path, mode="r")
        values, attrs = np.asarray(column[:]), dict(column.attrs)
        for codec, says in (
            (BLOSC[form], f"chunk {table}/both/.* is cut off"),
            (COMPRESSORS[form][1], f"chunk .* of {place}/{table}/both cannot"),
        ):
            write_bare(path, values, zarr_format=form, compressors=codec, overwrite=True)
            zarr.open_array(path, mode="r+").attrs.update(attrs)
            zarr.consolidate_metadata(place)
            (chunk,) = chunk_files(path)
            whole = chunk.read_bytes()
            chunk.write_bytes(whole[:-1])
            with pytest.raises(BrokenError, match=says) as caught:
                open_matrix(place)
            assert caught.value.chunk == chunk.relative_to(path).as_posix()
            chunk.write_bytes(whole)


def test_values_cut_off_within_blosc_are_told_when_read(tmp_path: Path, form: int) -> None:
    path = write_bare(
        tmp_path / "a", planted(60, 8), zarr_format=form, chunks=(20, 8), compressors=BLOSC[form]
    )
    chunk, rows = chunk_files(path)[1], open_matrix(path).rows
    whole = chunk.read_bytes()
    chunk.write_bytes(whole + b"more")
    assert rows.read(20, 40).shape == (20, 8)
    chunk.write_bytes(whole[:-1])
    assert rows.read(0, 20).shape == (20, 8)
    with pytest.raises(BrokenError, match="is cut off") as caught:
        rows.read(20, 40)
    assert caught.value.chunk == chunk.relative_to(path).as_posix()
    assert f"chunk {caught.value.chunk} of {path}" in caught.value.message


@pytest.mark.parametrize("whose", ["counts", "gene"])
def test_shuffle_as_netcdf_writes_it_is_no_silent_other_number(tmp_path: Path, whose: str) -> None:
    path = store(tmp_path / "data.zarr", 2, np.arange(5.0), None)
    metadata = path / whose / ".zarray"
    said = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(said | {"filters": [{"id": "shuffle", "elementsize": 0}]}))
    with pytest.raises(RequestError, match=f"{path}/{whose} is shuffled") as raised:
        open_matrix(path)
    assert "shuffle=False" in raised.value.remedy
