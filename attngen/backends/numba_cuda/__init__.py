"""The CUDA backend: numba.cuda kernels, and how they are scheduled and printed."""
