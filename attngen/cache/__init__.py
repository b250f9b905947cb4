"""The cache of generated packages and of the machine code compiled from them.

Input: a key (everything that shaped the code) and a generated package. Output: a folder to import.
Invariants: what is found was verified; a damaged, half-written or missing entry is rebuilt and
never an error; where nothing can be written, a private folder serves for this process instead.
"""

from attngen.cache.folder import CacheWarning, default_folder
from attngen.cache.key import CacheKey, compiler_digest, key_for
from attngen.cache.shelf import Entry
from attngen.cache.store import Cache, Difference, FieldChange, Finding

__all__ = [
    "Cache",
    "CacheKey",
    "CacheWarning",
    "Difference",
    "Entry",
    "FieldChange",
    "Finding",
    "compiler_digest",
    "default_folder",
    "key_for",
]
