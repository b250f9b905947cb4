"""The buckets of T5's relative position bias: which distances share a learned number.

Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer" (2020), and its published code: of n buckets the first n/2 hold the distances 0, 1, …
alone, and the others divide those up to `max_distance` evenly on a logarithmic scale. What lies
beyond is in the last. Where keys on both sides are told apart, later keys have the upper half of
the buckets. Every step is rounded to float32, as in the published models, so that a distance whose
logarithm is at the border of two buckets is in the one they were trained with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MAX_T5_DISTANCE = 1 << 12


@dataclass(frozen=True, slots=True)
class T5Buckets:
    """How many buckets there are, and what they hold."""

    buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = False

    @property
    def one_side(self) -> int:
        """Buckets for the keys on one side of a query."""
        return self.buckets // 2 if self.bidirectional else self.buckets

    @property
    def exact(self) -> int:
        """The first distance that shares its bucket, if others do."""
        return self.one_side // 2

    def table(self) -> tuple[int, ...]:
        """The bucket of each distance: 0 to `max_distance`, or -max_distance to it (k - q)."""
        earlier = [self._of_distance(d) for d in range(self.max_distance + 1)]
        if not self.bidirectional:
            return tuple(earlier)
        later = [self.one_side + bucket for bucket in earlier[1:]]
        return (*earlier[::-1], *later)

    def _of_distance(self, distance: int) -> int:
        if distance < self.exact:
            return distance
        ratio = np.float32(distance) / np.float32(self.exact)
        logarithm = np.float32(math.log(ratio))  # NumPy's own may round differently elsewhere
        steps = logarithm / np.float32(math.log(self.max_distance / self.exact))
        shared = int(steps * np.float32(self.one_side - self.exact))
        return min(self.exact + shared, self.one_side - 1)
