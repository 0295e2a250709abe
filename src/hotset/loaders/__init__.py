"""Doors for other libraries: thin, over `hotset.read` and `hotset.config`."""
