"""Images by class, trained on through Alnair's dataset API: ImageNet in small, on one machine, without a cluster.

    python examples/alnair_imagenet.py --epochs 3 --workers 2

Makes real JPEGs in a temporary directory that stands for the bucket of an Alnair job, and says for each epoch how many
samples a second there were and which part of the time was spent waiting for data (data stall). In a pod leave out
``uri`` (and the images): the dataset then reads its job's bucket.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from hotset.alnair import AlnairJobDataLoader, AlnairJobDataset

CLASSES = ("n01440764", "n01443537", "n01484850", "n01491361")
PIXELS = 64


class ImageNetDataset(AlnairJobDataset):
    """The class of an image is the third part of its name: imagenet-mini/train/CLASS/FILE."""

    def __convert__(self):
        classes = sorted({key.split("/")[2] for key in self.keys})
        samples = [self.data[key] for key in self.keys]
        targets = [classes.index(key.split("/")[2]) for key in self.keys]
        return samples, targets

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.get_data(index))).convert("RGB")
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        return pixels, self.get_target(index)


def make_images(root: Path, count: int, part: str) -> None:
    """``count`` JPEGs; the classes differ in their colours, so that there is something to learn."""
    rng = random.Random(part)
    for number in range(count):
        label = number % len(CLASSES)
        colour = tuple(rng.randrange(120) + (120 if channel == label else 0) for channel in range(3))
        image = Image.new("RGB", (PIXELS, PIXELS), colour)
        draw = ImageDraw.Draw(image)
        for _ in range(8):
            corners = [rng.randrange(PIXELS) for _ in range(4)]
            draw.line(corners, fill=tuple(rng.randrange(256) for _ in range(3)), width=2)
        path = root / "imagenet-mini" / part / CLASSES[label] / f"{CLASSES[label]}_{number:05}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=90)


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, len(CLASSES))
    )


def run_epoch(loader: AlnairJobDataLoader, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> str:
    """One pass, training if there is an optimizer. What to say about it."""
    began = before = time.perf_counter()
    stalled, seen, right = 0.0, 0, 0
    for images, targets in loader:
        stalled += time.perf_counter() - before
        with torch.set_grad_enabled(optimizer is not None):
            scores = model(images)
            loss = nn.functional.cross_entropy(scores, targets)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seen += len(targets)
        right += int((scores.argmax(1) == targets).sum())
        before = time.perf_counter()
    took = time.perf_counter() - began
    return (
        f"{seen} samples in {loader.num_batches} batches, {seen / took:.0f} samples/s, "
        f"data stall {100 * stalled / took:.1f} %, {100 * right / seen:.0f} % right"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=400, help="to train with (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--maxmemory", type=int, default=0, help="MB; 0: no limit (default)")
    parser.add_argument("--eager", action="store_true", help="bytes in memory instead of lazy loading")
    parser.add_argument("--no-cache", action="store_true", help="read the source in each epoch")
    chosen = parser.parse_args()
    qos = {"usecache": not chosen.no_cache, "lazyloading": not chosen.eager, "maxmemory": chosen.maxmemory}
    with tempfile.TemporaryDirectory(prefix="alnair-imagenet-") as directory:
        os.environ.setdefault("HOTSET_CACHE", f"{directory}/cache")
        root = Path(directory) / "bucket"
        make_images(root, chosen.images, "train")
        make_images(root, max(1, chosen.images // 4), "val")
        torch.manual_seed(0)
        model = small_network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batches = {"batch_size": chosen.batch_size, "num_workers": chosen.workers}
        with (
            ImageNetDataset(["imagenet-mini/train"], uri=root.as_uri(), qos=qos) as train,
            ImageNetDataset(["imagenet-mini/val"], uri=root.as_uri(), qos=qos) as val,
            AlnairJobDataLoader(train, shuffle=True, **batches) as train_loader,
            AlnairJobDataLoader(val, **batches) as val_loader,
        ):
            for epoch in range(1, chosen.epochs + 1):
                print(f"epoch {epoch}: {run_epoch(train_loader, model, optimizer)}", flush=True)
            print(f"validation: {run_epoch(val_loader, model, None)}", flush=True)


if __name__ == "__main__":
    main()
