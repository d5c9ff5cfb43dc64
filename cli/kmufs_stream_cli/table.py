"""The options that say which table a command works on, for every command that reads data."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from kmufs_stream.errors import RequestError
from kmufs_stream_cli import options

if TYPE_CHECKING:
    from kmufs_stream import Matrix, Screening

READING = ("fill_missing_chunks", "retries", "storage_option")
SECRET = re.compile(
    r"(?i)(^|_)(key|secret|token|password|passwd|pass|sas|credentials?|connection_string)($|_)|auth"
)


@dataclass(frozen=True)
class StoreOptions:
    """DATA and where in it the table is, as typed."""

    data: options.Data
    variable: options.Variable = None
    group: options.Group = None
    sample_dims: options.SampleDims = None
    feature_dims: options.FeatureDims = None
    features_from_variables: options.FeaturesFromVariables = False
    layer: options.Layer = None
    raw: options.Raw = False
    feature_labels: options.FeatureLabels = None
    fill_missing_chunks: options.FillMissingChunks = False
    retries: options.Retries = 5
    storage_option: options.StorageOption = None
    where: options.Where = None

    def open(self, like: str | None = None) -> Matrix:
        """The table; where in DATA it is may be known from what was made of such data."""
        from kmufs_stream.factors.reopening import open_like

        return open_like(
            like,
            self.data,
            variable=self.variable,
            group=self.group,
            sample_dims=split(self.sample_dims),
            feature_dims=split(self.feature_dims),
            features_from_variables=self.features_from_variables,
            layer=self.layer,
            raw=self.raw,
            feature_labels=self.feature_labels,
            fill_missing_chunks=self.fill_missing_chunks,
            retries=self.retries,
            where=self.where,
            storage_options=self.storage_options(),
            **self._more(),
        )

    def storage_options(self) -> dict[str, Any]:
        """Those of --storage-option."""
        return storage_options(self.storage_option)

    def located(self) -> dict[str, Any]:
        """Those of the options typed that every command has that reads data."""
        typed = self.typed()
        return {f.name: typed[f.name] for f in fields(StoreOptions) if f.name in typed}

    def reading(self) -> dict[str, Any]:
        """Those of the options typed that tell how DATA is read, not what of it."""
        typed = self.typed()
        return {name: typed[name] for name in READING if name in typed}

    def typed(self) -> dict[str, Any]:
        """The options that differ from their defaults, to be typed again."""
        defaults = asdict(type(self)(self.data))
        return {n: v for n, v in asdict(self).items() if n != "data" and v != defaults[n]}

    def _more(self) -> dict[str, Any]:
        """What else the table is opened with."""
        return {}


@dataclass(frozen=True)
class TableOptions(StoreOptions):
    """The same, with what takes part of it and what becomes of its values."""

    transform: options.Transform = None
    features: options.Features = None
    exclude_features: options.ExcludeFeatures = None
    missing: options.Missing = "raise"
    min_std: options.MinStd = 0.0
    min_nonzero: options.MinNonzero = 0.0

    def screening(self) -> Screening:
        """What becomes of missing values and rare features."""
        from kmufs_stream import Screening

        return Screening(self.missing, self.min_std, self.min_nonzero)

    def asked_screening(self) -> Screening | None:
        """The same where any of it was asked for: what a factor at hand has to agree with."""
        asked, usual = self.screening(), type(self)(self.data).screening()
        return None if asked == usual else asked

    def _more(self) -> dict[str, Any]:
        return {
            "transform": self.transform or (),
            "features": self.features or None,
            "exclude_features": self.exclude_features or None,
        }


def split(names: str | None) -> list[str] | None:
    """Names parted by commas."""
    return None if names is None else [name.strip() for name in names.split(",")]


def storage_options(given: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE words as keywords: values are JSON, or else text.

    Raises RequestError for what is none, and for credentials: what is typed can be read by others.
    """
    found: dict[str, Any] = {}
    for word in given or []:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise RequestError(
                "bad_option",
                f"--storage-option {key!r} names no value.",
                "Write it KEY=VALUE, like endpoint_url=https://host.",
            )
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = {"True": True, "False": False}.get(value, value)
        secret = _secret({key: found[key]})
        if secret is not None:
            raise RequestError(
                "secret_in_option",
                f"--storage-option {key} holds a credential ({secret}), which others could read.",
                "Set it in the environment (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or AWS_PROFILE), and leave it out here.",
            )
    return found


def _secret(value: Any) -> str | None:
    """The first key, however deep, whose value is a credential."""
    if not isinstance(value, dict):
        return None
    for key, inner in value.items():
        named = SECRET.search(key) and not isinstance(inner, bool | None) and inner != "anon"
        if named or (isinstance(inner, str) and re.search(r"://[^/\s]*@", inner)):
            return str(key)
        if (found := _secret(inner)) is not None:
            return found
    return None


def on_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a table, in place of its parameter ``table``.

    That is a StoreOptions or a TableOptions; ``Annotated[..., typer.Option(...)]`` tells how DATA
    is given there, and where the parameter has a default it may be left out: ``data`` is then "".
    """
    own = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True)
    kind, *said = (
        get_args(hints["table"]) if get_origin(hints["table"]) is Annotated else [hints["table"]]
    )
    optional = own["table"].default is not inspect.Parameter.empty
    kinds = {**hints, **get_type_hints(kind, include_extras=True)}
    names = [field.name for field in fields(kind)]
    theirs = dict(inspect.signature(kind).parameters)
    if said:
        kinds["data"] = Annotated[str | None if optional else str, *said]
    if optional:
        theirs["data"] = theirs["data"].replace(default=None)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        typed = {name: given.pop(name) for name in names}
        command(table=kind(**{**typed, "data": typed["data"] or ""}), **given)

    parameters = [p for q in own.values() for p in (theirs.values() if q.name == "table" else [q])]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kinds[p.name])
            for p in parameters
        ]
    )
    run.__annotations__ = {p.name: kinds[p.name] for p in parameters}
    del run.__wrapped__
    return run
