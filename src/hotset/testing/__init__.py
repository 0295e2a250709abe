"""Shipped for third parties: contract suites for their own sources, and sources that misbehave on demand."""
