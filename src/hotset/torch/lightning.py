"""For Lightning's Trainer: what the data cost, in its log."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from hotset.torch.loader import HotLoader

__all__ = ["HotStats"]


class HotStats(Callback):
    """Logs `LoaderStats` of the training's `HotLoader` every ``every`` batches and at the end of each epoch.

    Of several ranks use the Trainer with ``use_distributed_sampler=False``: a `HotLoader` shares the samples itself.
    """

    def __init__(self, every: int = 50) -> None:
        self._every = every

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        if (trainer.global_step + 1) % self._every == 0:
            self._log(trainer, module)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        self._log(trainer, module)

    def _log(self, trainer: Trainer, module: LightningModule) -> None:
        loader = trainer.train_dataloader
        if isinstance(loader, HotLoader):
            module.log_dict(loader.stats().encoded())
