"""Alnair's loader under the name of its module; see ``AlnairJobDataset.py`` about the other names."""

from torch.utils.data import DataLoader

from hotset.alnair import AlnairJobDataLoader
