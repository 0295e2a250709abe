"""Alnair's dataset under the name of its module.

Scripts write ``from AlnairJobDataset import *`` and then use what Alnair's module had imported itself. So there is no
``__all__`` here, but what a script of that time may have found.
"""

import json
import os
import pickle
from typing import Dict, List

from torch.utils.data import Dataset

from hotset.alnair import AlnairJobDataset, dotdict
