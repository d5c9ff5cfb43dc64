"""Groups of options: dataclasses, in place of which a command gets one option for each field."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, get_type_hints

import typer


def section(heading: str) -> Callable[..., Any]:
    """Return a function that declares an option, under a heading of the help, as a field."""

    def option(
        default: object,
        help: str,
        metavar: str | None = None,
        *,
        choices: Sequence[str] = (),
        **more: Any,
    ) -> Any:
        if choices:  # the library checks them, and suggests one that is near
            metavar = "|".join(choices)
            more |= {"parser": str, "autocompletion": completed(choices)}
        said = {"help": help, "metavar": metavar, "rich_help_panel": heading, **more}
        return field(default=default, metadata=said)

    return option


def completed(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Let a shell complete a word, or what follows its last comma, to one of these names."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names if name.startswith(last)]

    return complete


@dataclass(frozen=True)
class Group:
    """Options that belong together."""

    def typed(self) -> dict[str, Any]:
        """The options that differ from their defaults, to be typed again."""
        given = {option.name: (getattr(self, option.name), option) for option in fields(self)}
        return {name: value for name, (value, option) in given.items() if value != option.default}


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its groups one by one, as Typer takes them."""
    hints = get_type_hints(command, include_extras=True)
    groups = {n: k for n, k in hints.items() if inspect.isclass(k) and issubclass(k, Group)}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(own.replace(annotation=hints[name], kind=own.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option.name: given.pop(option.name) for option in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def _options(group: type[Group]) -> Iterator[inspect.Parameter]:
    """The options of a group, as parameters of a command."""
    hints = get_type_hints(group)
    annotated: Any = Annotated
    for option in fields(group):
        said = dict(option.metadata)
        names = "--" + option.name.replace("_", "-"), *said.pop("short", ())
        yield inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=annotated[hints[option.name], typer.Option(*names, **said)],
        )
