"""What the library says, in words of the command line: its parameters are options here."""

from __future__ import annotations

import ast
import json
import re
import shlex

# What is quoted (names and conditions of the user's, left as they are); `name` or `name=value`.
QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
PARAMETER = re.compile(rf"(?<!\w)(?:{QUOTED})|`(\w+)(?:=((?:{QUOTED}|[^`'\"])*))?`")
OPTIONS = {"coordinates": "coordinate", "path": "csv", "storage_options": "storage-option"}
TOGETHER = ("sample_dims", "feature_dims")  # names of one option, parted by commas
ARGUMENTS = (("convert", "out"), ("rechunk", "out"))  # of these commands


def as_typed(text: str, command: str = "") -> str:
    """The text with each parameter as it is typed: ```h=3``` is ``--h 3``."""
    return PARAMETER.sub(lambda found: _typed(found, command), text)


def _typed(found: re.Match[str], command: str) -> str:
    name, text = found.groups()
    if name is None:
        return found[0]
    if (command, name) in ARGUMENTS:
        return str(name).upper()
    option = "--" + OPTIONS.get(name, name).replace("_", "-")
    if text is None:
        return option
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text  # what stands for a value, like PATH
    if value is True:
        return option
    if isinstance(value, dict):
        value = [f"{key}={json.dumps(of_it)}" for key, of_it in value.items()]
    values = value if isinstance(value, list) else [value]
    if name in TOGETHER:
        values = [",".join(values)]
    return " ".join(f"{option} {shlex.quote(str(each))}" for each in values)
