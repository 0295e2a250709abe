"""The names of Alnair's package ``alnairjob``."""

from hotset.alnair import AlnairJobDataLoader, AlnairJobDataset, dotdict

__all__ = ["AlnairJobDataLoader", "AlnairJobDataset", "dotdict"]
