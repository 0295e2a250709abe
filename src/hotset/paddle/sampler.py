"""Which sample comes when: seeded, shared between ranks, known to the prefetcher."""

from __future__ import annotations

from collections.abc import Iterator

import paddle.io

from hotset.errors import InvalidInput
from hotset.loaders.samples import Epochs
from hotset.paddle.dataset import HotDataset
from hotset.paddle.reader import errors_end_the_reading

__all__ = ["HotBatchSampler"]


class HotBatchSampler(paddle.io.DistributedBatchSampler):  # type: ignore[misc]  # paddle has no types that mypy finds
    """Takes the place of `paddle.io.DistributedBatchSampler`, with the same arguments, and tells the prefetcher what it will
    give: absent objects are fetched in that order, at most ``lookahead`` bytes ahead of the reading.

    The order is a function of (snapshot, seed, epoch) only; the ranks share it: the n-th batches of all ranks together are the
    n-th piece of the order. As with paddle's sampler the ranks get the same number of samples, of which some come twice if it
    does not divide, and without `set_epoch` each iteration is the next epoch.
    """

    def __init__(
        self,
        dataset: HotDataset,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,  # noqa: FBT001, FBT002  (as paddle has it)
        drop_last: bool = False,  # noqa: FBT001, FBT002
        *,
        seed: int = 0,
        lookahead: int | None = None,
    ) -> None:
        """Rank and number of ranks are those of `paddle.distributed`, unless they are given."""
        if not isinstance(dataset, HotDataset):
            raise InvalidInput(f"a sampler of a HotDataset, not of a {type(dataset).__name__}")
        if batch_size < 1:
            raise InvalidInput(f"a batch of {batch_size} samples")
        super().__init__(dataset, batch_size, num_replicas, rank, shuffle, drop_last)
        self._epochs = Epochs(
            dataset.samples, shuffle=shuffle, seed=seed, rank=self.local_rank, world=self.nranks, lookahead=lookahead
        )
        if not len(self):
            raise InvalidInput(
                f"no batch of {batch_size} can be made of {self.num_samples} samples a rank: make it smaller"
            )

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self.epoch
        if self.shuffle:
            self.epoch += 1
        with errors_end_the_reading():
            indices: list[int] = self._epochs.begin(epoch).tolist()
        size = self.batch_size * self._acc_steps
        for start in range(0, len(indices), size):
            batch = indices[start : start + size]
            if len(batch) == size or not self.drop_last:
                yield batch
