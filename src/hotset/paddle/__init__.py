"""hotset in PaddlePaddle: a dataset and a batch sampler for `paddle.io.DataLoader`.

from hotset.paddle import HotBatchSampler, HotDataset

train = HotDataset("s3://bucket/train", decode="image", transform=to_array, target="directory")
batches = HotBatchSampler(train, batch_size=96, shuffle=True, drop_last=True)
for images, classes in paddle.io.DataLoader(train, batch_sampler=batches, num_workers=8):
    ...
"""

from hotset.paddle.dataset import HotDataset, collate
from hotset.paddle.sampler import HotBatchSampler

__all__ = ["HotBatchSampler", "HotDataset", "collate"]
