"""See ``../AlnairJobDataset.py``."""

from hotset.alnair.compat.AlnairJobDataset import *
