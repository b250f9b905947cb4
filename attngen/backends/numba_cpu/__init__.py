"""The CPU backend: probes the machine, proposes and checks a schedule, prints Numba kernels."""
