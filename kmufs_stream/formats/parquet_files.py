"""Find the files of a Parquet table, and the columns that they share; no rows are read."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kmufs_stream.errors import RequestError
from kmufs_stream.formats.blocks import unreadable

HIDDEN = ("_", ".")  # prefixes of files that hold no rows, such as logs
LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}  # say which files hold current rows
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")


def files_of(path: str) -> list[str]:
    """List a file, or all files of a folder but hidden ones, sorted by name.

    Raises RequestError for folders whose files may hold rows of older versions.
    """
    place = Path(path)
    if not place.is_dir():
        return [path]
    kept = next((kind for log, kind in LOGS.items() if (place / log).exists()), None)
    if kept is not None:
        raise RequestError(
            "bad_folder",
            f"{path} is a {kept} table: some of its files may hold rows that are there no more.",
            f"Write its rows as plain Parquet files, with a library for {kept}.",
        )
    return sorted(
        str(file)
        for file in place.rglob("*")
        if file.is_file() and not any(p.startswith(HIDDEN) for p in file.relative_to(place).parts)
    )


def metadata_of(file: str) -> Any:
    """Read a file's metadata. Raises RequestError if it is damaged, or not Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        if Path(file).suffix != ".parquet":
            raise RequestError(
                "bad_folder",
                f"{file} is no Parquet file.",
                "Move it out of the folder, or let its name begin with _ to have it passed over.",
            ) from error
        raise unreadable(file, error) from error


def schema_of(metadata: Any) -> Any:
    """Return the columns, with the categories that Arrow noted when it wrote them."""
    import pyarrow as pa

    read = metadata.schema.to_arrow_schema()
    noted = (metadata.metadata or {}).get(b"ARROW:schema")
    if noted is None:
        return read
    for field in pa.ipc.read_schema(pa.BufferReader(base64.b64decode(noted))):
        i = read.get_field_index(field.name)  # -1 where several have this name
        if i >= 0 and pa.types.is_dictionary(field.type):
            read = read.set(i, field)
    return read


def partitions_of(path: str, files: list[str]) -> dict[str, dict[str, Any]]:
    """For each file, read the values that folders named ``column=value`` give to all its rows."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        pairs = [p.split("=", 1) for p in Path(file).parts[len(Path(path).parts) : -1] if "=" in p]
        known: dict[str, Any] = {unquote(name): unquote(value) for name, value in pairs}
        found[file] = {n: None if v == NO_PARTITION else v for n, v in known.items()}
    for name in {name for known in found.values() for name in known}:
        values = {known.get(name) for known in found.values()}
        if all(value is not None and WHOLE_NUMBER.fullmatch(value) for value in values):
            for known in found.values():
                known[name] = int(known[name])
    return found


def types_of(
    schemas: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], set[str]]:
    """Find types that hold the columns of all files, and which columns are categories.

    Raises RequestError if a file has several columns of one name, if files have different columns,
    or if the types of a column have none in common.
    """
    import pyarrow as pa

    types: dict[str, Any] = {}
    first, categories = next(iter(schemas)), set()
    for file, schema in schemas.items():
        twice = [name for name, n in Counter(schema.names).items() if n > 1]
        if twice:
            raise RequestError(
                "columns_differ",
                f"{file} has several columns {twice[0]!r}.",
                "Give each column a name of its own.",
            )
        fields = {field.name: field.type for field in schema}
        for name, value in parts[file].items():
            if name not in fields:
                fields[name] = pa.int64() if isinstance(value, int) else pa.string()
                categories.add(name)
        for name in sorted(fields.keys() ^ types.keys()) if types else ():
            without, having = (file, first) if name in types else (first, file)
            raise RequestError(
                "columns_differ",
                f"{without} has no column {name!r}, which {having} has.",
                "All files of a folder need the same columns: convert those of other tables apart.",
            )
        for name, kind in fields.items():
            if pa.types.is_dictionary(kind):
                categories.add(name)
                kind = kind.value_type
            types[name] = _common(types.get(name, kind), kind, name, file)
    return types, categories


def _common(known: Any, kind: Any, name: str, file: str) -> Any:
    import pyarrow as pa

    try:
        both = [pa.schema([(name, known)]), pa.schema([(name, kind)])]
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RequestError(
            "columns_differ",
            f"Column {name!r} holds {kind} in {file}, and {known} in files before it.",
            "Write it with one type in all files of the folder.",
        ) from error


def with_nulls(tables: Iterable[Any]) -> set[str]:
    """Find the columns that have nulls, as far as the files say so."""
    found = set()
    for known in tables:
        for group in map(known.row_group, range(known.num_row_groups)):
            for column in map(group.column, range(known.num_columns)):
                noted = column.statistics
                if noted is not None and noted.null_count:
                    found.add(column.path_in_schema)
    return found
