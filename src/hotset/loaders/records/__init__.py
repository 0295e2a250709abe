"""Records: lines, rows, frames and members of large files as the samples of a dataset, read out of cached packs.

    with hotset.records("s3://bucket/criteo", "csv", header=False) as records:
        for i in records.order(seed=1).epoch(0):
            row = records[i]

Where each record lies is found in one pass and kept beside the snapshot; from then on a record is a slice of a memory map.
One module a format; `format.py` is what each of them offers.
"""

from hotset.loaders.records.build import IndexProgress
from hotset.loaders.records.index import Damage
from hotset.loaders.records.sequence import Records, records

__all__ = ["Damage", "IndexProgress", "Records", "records"]
