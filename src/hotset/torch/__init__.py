"""hotset in PyTorch: datasets, a sampler that tells what comes, a loader that can stop and go on.

    from hotset.torch import loader

    batches = loader("s3://bucket/train", batch_size=96, decode="image", target="directory", num_workers=8)
    for epoch in range(90):
        for images, classes in batches:
            ...
    print(batches.stats())

`HotDataset` and `HotSampler` are for those who have a `DataLoader` (or torchdata's `StatefulDataLoader`) of their own.
"""

from hotset.torch.dataset import HotDataset, ImageFolder, KeyedBytes
from hotset.torch.loader import HotLoader, loader
from hotset.torch.sampler import HotSampler
from hotset.torch.stats import LoaderStats

__all__ = ["HotDataset", "HotLoader", "HotSampler", "ImageFolder", "KeyedBytes", "LoaderStats", "loader"]
