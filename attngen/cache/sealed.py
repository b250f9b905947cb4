"""Files that prove they are whole: a digest over their content and what they belong to.

Input: a path, a context (what the content was made from) and bytes. Output: the bytes, or None if
the file is missing, damaged or belongs to something else. Invariant: a file appears whole or not
at all, and one that fails its check is removed, so that the next writer starts clean.
This guards against broken disks, killed writers and mix-ups, not against an attacker.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from pathlib import Path

_MAGIC = b"attngen-sealed-1"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
TEMPORARY = ".tmp-"


def write(path: Path, context: bytes, payload: bytes) -> None:
    """Write `payload` at `path`, sealed for `context`.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    replace_file(path, _MAGIC + _seal(context, payload) + payload)


def read(path: Path, context: bytes) -> bytes | None:
    """The payload of `path` if it is whole and was sealed for `context`; otherwise None."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    payload = content[_HEADER:]
    if content[:_HEADER] == _MAGIC + _seal(context, payload):
        return payload
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step: a reader sees the old content or the new, never a part.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _seal(context: bytes, payload: bytes) -> bytes:
    outer = hashlib.sha256(hashlib.sha256(context).digest())
    outer.update(payload)
    return outer.digest()
