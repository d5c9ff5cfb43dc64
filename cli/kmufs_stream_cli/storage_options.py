"""Options for fsspec, as KEY=VALUE words: parsed, and credentials among them refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from kmufs_stream import RequestError

SECRET = re.compile(
    r"(?i)(^|_)(key|secret|token|password|passwd|pass|sas|credentials?|connection_string)($|_)|auth"
)


def parsed(words: Iterable[str]) -> dict[str, Any]:
    """Parse KEY=VALUE words: values are JSON, or else text.

    Raises RequestError for other words, and for credentials: other users can read command lines.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise RequestError(
                "bad_option",
                f"--storage-option {key!r} names no value.",
                "Write it KEY=VALUE, like endpoint_url=https://host.",
            )
        try:
            found[key] = json.loads(value, object_pairs_hook=_checked)
        except json.JSONDecodeError:
            found[key] = {"True": True, "False": False}.get(value, value)
    return _checked(found.items())


def _checked(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of options of which none is a credential."""
    found = dict(pairs)
    for key, value in found.items():
        named = SECRET.search(key) and not isinstance(value, bool | None) and value != "anon"
        if named or (isinstance(value, str) and re.search(r"://[^/\s]*@", value)):
            raise RequestError(
                "secret_in_option",
                f"--storage-option {key} holds a credential, which others could read.",
                "Set it in the environment (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or AWS_PROFILE), and leave it out here.",
            )
    return found
