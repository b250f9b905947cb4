"""The slopes of ALiBi for any number of heads, as BLOOM and MPT have them.

Source: Press, Smith and Lewis, "Train Short, Test Long" (2022), and its published code: for a
power of two n the slopes are 2**(-8/n), 2**(-16/n), …, 2**-8; any other count takes those of the
power below it and then every other slope of the power above.
"""

from __future__ import annotations


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """One slope for each of `heads` heads, all positive."""
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * i / below) for i in range(1, below + 1)]
    between = [2.0 ** (-4.0 * i / below) for i in range(1, 2 * below, 2)]
    return (*slopes, *between)[:heads]
