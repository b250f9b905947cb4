"""Specs: from YAML text to a checked value, and on to AttentionIR."""
