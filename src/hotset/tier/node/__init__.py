"""The node tier: packs as sparse files (or objects as plain files) in a cache directory that any number of processes share.

<cache>/hotset.json                     format and quota
space                           bytes promised so far; its lock orders admissions and evictions
names/<name>                    -> ../datasets/<id>
datasets/<id>/dataset.json      what the dataset is: sources (no secrets), filters, layout
listing.lock      one listing at a time on this machine
claims            one lock byte a unit: who fetches what
current           digest of the snapshot that `open` gives, and when it was listed
snapshots/<digest>/{objects,packs}.arrow  lease  pinned
packs/<name>      one sparse file a pack (layout "packs")
trees/<digest>/   one plain file an object (layout "files"), beside it <digest>.ledger
"""

from hotset.tier.node.cache import CacheDirectory
from hotset.tier.node.dataset import DatasetDirectory, Lease
from hotset.tier.node.records import DatasetRecord, SourceRecord

__all__ = ["CacheDirectory", "DatasetDirectory", "DatasetRecord", "Lease", "SourceRecord"]
