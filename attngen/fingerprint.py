"""Stable digests of values and texts: the same meaning gives the same hexadecimal digits.

Works on frozen dataclasses, enums, mappings, sequences and scalars. Fields with ``compare=False``
(origins, spans) are left out, as they say where a value came from and not what it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(value: object) -> Any:
    """`value` as plain JSON data with a stable order; floats by their exact hexadecimal form."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = (f.name for f in dataclasses.fields(value) if f.compare)
        fields = {name: canonical(getattr(value, name)) for name in compared}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if isinstance(value, (list, tuple)):
        return [canonical(v) for v in value]
    if isinstance(value, float):
        return value.hex()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"no canonical form for {type(value).__name__}")


def digest(value: object) -> str:
    """SHA-256 of the canonical form of `value`, as 64 hexadecimal digits."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def text_digest(text: str) -> str:
    """SHA-256 of `text` in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
