"""Backends, one folder a target with the same module names; none of them ever sees YAML."""
