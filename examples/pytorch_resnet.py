"""The computer-vision scenario of the study behind hotset: a ResNet on JPEGs out of the cache, on several ranks.

    python examples/pytorch_resnet.py                                 # makes tiny images, trains on two processes (gloo, CPU)
    python examples/pytorch_resnet.py --data s3://bucket/train --model resnet50 --batch 96 --ranks 8

Each rank prints its samples a second and the share of the time that it waited for data; the ranks stop after the given
number of steps, keep their state, and go on from it in the next run with --resume.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed
import torchvision
from PIL import Image
from torch.nn.parallel import DistributedDataParallel

from hotset.torch import loader


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as scratch:
        data = options.data or make_images(Path(scratch) / "images")
        meeting = f"file://{scratch}/meeting"
        torch.multiprocessing.spawn(train, (options, data, meeting), nprocs=options.ranks)


def train(rank: int, options: argparse.Namespace, data: str, meeting: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=options.ranks)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    augment = torchvision.transforms.Compose(
        [
            torchvision.transforms.RandomResizedCrop(options.size, antialias=True),
            torchvision.transforms.ConvertImageDtype(torch.float32),
        ]
    )
    with loader(
        data,
        batch_size=options.batch,
        decode="image",
        transform=augment,
        target="directory",
        num_workers=options.workers,
        cache=options.cache,
    ) as batches:
        model = DistributedDataParallel(getattr(torchvision.models, options.model)(num_classes=len(batches.classes)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        first = 0
        if options.resume:
            saved = torch.load(options.state, weights_only=True)
            model.module.load_state_dict(saved["model"])
            batches.load_state_dict(saved["data"])
            first = saved["data"]["epoch"]
        for _ in range(first, options.epochs):
            for images, classes in batches:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images), classes)
                loss.backward()
                optimizer.step()
            print(f"rank {rank}, {batches.stats()}, loss {loss.item():.3f}", flush=True)
        if rank == 0 and options.state:
            torch.save({"model": model.module.state_dict(), "data": batches.state_dict()}, options.state)
    torch.distributed.destroy_process_group()


def make_images(root: Path, classes: int = 4, each: int = 12) -> str:
    """Real JPEGs, small ones: each class has a colour of its own, so that there is something to learn."""
    noise = np.random.default_rng(0)
    for number in range(classes):
        (root / f"class{number}").mkdir(parents=True)
        for image in range(each):
            pixels = noise.integers(0, 96, (64, 64, 3), np.uint8)
            pixels[..., number % 3] += np.uint8(128)
            Image.fromarray(pixels).save(root / f"class{number}" / f"{image:03}.jpg")
    return str(root)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="where the images are, a directory for each class (default: makes some)")
    parser.add_argument("--cache", help="the cache directory (default: as HOTSET_CACHE says)")
    parser.add_argument("--model", default="resnet18", help="a model of torchvision (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="of each loader (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="samples a step and rank (default: %(default)s)")
    parser.add_argument("--size", type=int, default=32, help="pixels of the crops (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="in all (default: %(default)s)")
    parser.add_argument("--state", help="file to keep model and position in")
    parser.add_argument("--resume", action="store_true", help="go on from --state")
    return parser.parse_args()


if __name__ == "__main__":
    main()
