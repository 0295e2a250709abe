"""See ``../AlnairJobDataLoader.py``."""

from hotset.alnair.compat.AlnairJobDataLoader import *
