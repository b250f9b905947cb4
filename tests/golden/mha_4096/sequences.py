"""Which queries attend to which keys: one row of a table for each sequence of a call.

A batch, a batch with key lengths and packed sequences of any lengths are the same to the kernels: a
sequence is a run of queries and a run of keys in the arrays. Tasks are numbered across them.
"""

import numpy as np
from numba import njit

# Batch index, first query, queries, first key, keys, and the tasks up to the end of the sequence.
FIELDS = 6

OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}


def uniform(batch, q_len, kv_len):
    """A batch of sequences with the same lengths."""
    table = np.zeros((batch, FIELDS), np.int64)
    table[:, 0] = range(batch)
    table[:, 2] = q_len
    table[:, 4] = kv_len
    return table


def padded(q_len, kv_lengths):
    """A batch whose keys are valid up to a length of their own; int64 (batch,)."""
    table = uniform(len(kv_lengths), q_len, 0)
    table[:, 4] = kv_lengths
    return table


def packed(q_ends, k_ends):
    """Sequences one after the other in a batch of one; cumulative lengths, int64 (n + 1,)."""
    table = np.zeros((len(q_ends) - 1, FIELDS), np.int64)
    table[:, 1], table[:, 2] = q_ends[:-1], np.diff(q_ends)
    table[:, 3], table[:, 4] = k_ends[:-1], np.diff(k_ends)
    return table


def numbered(table, tasks):
    """`table` as the kernels read it, with this many tasks in each sequence."""
    table[:, 5] = np.cumsum(tasks)
    return table.reshape(-1)


@njit(**OPTIONS)
def task_count(sequences):
    """Tasks in all."""
    return sequences[-1]


@njit(**OPTIONS)
def find_sequence(sequences, task):
    """The sequence that a task belongs to, its number, and the task's number in it."""
    low = 0
    high = sequences.size // FIELDS - 1
    while low < high:  # the first sequence that ends behind the task
        middle = (low + high) // 2
        if sequences[middle * FIELDS + 5] > task:
            high = middle
        else:
            low = middle + 1
    at = low * FIELDS
    before = sequences[at - 1] if low else 0
    b, q_start, q_len = sequences[at], sequences[at + 1], sequences[at + 2]
    k_start, kv_len = sequences[at + 3], sequences[at + 4]
    return (b, q_start, q_len, k_start, kv_len), low, task - before
