"""ResNet in PaddlePaddle: images in a directory for each class, shuffled, with workers, through `hotset.paddle`.

    python examples/paddle_resnet.py                              # makes its own few JPEGs
    python examples/paddle_resnet.py --uri s3://bucket/imagenet/train --batch-size 96 --workers 8
    python -m paddle.distributed.launch --devices 0,1 examples/paddle_resnet.py --uri ...     # each rank its share

Needs PaddlePaddle (`pip install hotset[paddle]`). Prints samples/s and the share of the time that training waited for data.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of what only those need who compile
    import paddle

from paddle.vision import transforms
from PIL import Image, ImageDraw

from hotset.paddle import HotBatchSampler, HotDataset


def make_images(directory: Path, count: int) -> None:
    """JPEGs of three classes: a circle, a square or a cross, somewhere, of any colour."""
    rng = random.Random(0)
    for number in range(count):
        shape = ("circle", "cross", "square")[number % 3]
        width, height = rng.randrange(80, 120), rng.randrange(80, 120)
        image = Image.new("RGB", (width, height), tuple(rng.randrange(100) for _ in range(3)))
        pen = ImageDraw.Draw(image)
        x, y, size, colour = (
            rng.randrange(20),
            rng.randrange(20),
            rng.randrange(40, 60),
            tuple(rng.randrange(150, 256) for _ in range(3)),
        )
        if shape == "circle":
            pen.ellipse((x, y, x + size, y + size), fill=colour)
        elif shape == "square":
            pen.rectangle((x, y, x + size, y + size), fill=colour)
        else:
            pen.line((x, y, x + size, y + size), fill=colour, width=8)
            pen.line((x + size, y, x, y + size), fill=colour, width=8)
        path = directory / shape / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=90)


def to_array(size: int) -> transforms.Compose:
    """From an image of Pillow to a normalized array."""
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size, scale=(0.5, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.Transpose(),
            transforms.Normalize(mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4]),
        ]
    )


def train(samples: HotDataset, options: argparse.Namespace) -> None:
    paddle.seed(0)
    model = paddle.vision.models.resnet18(num_classes=len(samples.classes))
    if paddle.distributed.get_world_size() > 1:
        paddle.distributed.init_parallel_env()
        model = paddle.DataParallel(model)
    optimizer = paddle.optimizer.Momentum(0.01, parameters=model.parameters(), weight_decay=1e-4)
    batches = HotBatchSampler(samples, options.batch_size, shuffle=True, drop_last=True)
    loader = paddle.io.DataLoader(samples, batch_sampler=batches, num_workers=options.workers)
    for epoch in range(options.epochs):
        batches.set_epoch(epoch)
        steps = iter(loader)
        batch = next(steps)  # which starts the workers: not counted
        seen, waited, losses = 0, 0.0, []
        started = time.perf_counter()
        while batch is not None:
            images, labels = batch
            loss = paddle.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))
            seen += len(labels)
            asked = time.perf_counter()
            batch = next(steps, None) if len(losses) != options.steps else None
            waited += time.perf_counter() - asked
        took = time.perf_counter() - started
        del steps  # ends the workers
        loss = sum(losses) / len(losses)
        print(f"epoch {epoch}: loss {loss:.3f}, {seen / took:,.1f} samples/s, data stall {100 * waited / took:.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", help="where the images are; without it, a few are made")
    parser.add_argument("--count", type=int, default=240, help="how many are made")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="batches of an epoch; all of them by default")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=64, help="of the images when they are trained on")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with ExitStack() as stack:
        how = {}
        if options.uri is None:
            made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hotset-shapes-")))
            make_images(made / "data", options.count)
            options.uri, how = str(made / "data"), {"cache": made / "cache", "quota": "1GiB"}
        samples = stack.enter_context(
            HotDataset(
                options.uri, decode="pil", transform=to_array(options.size), target="directory", on_bad="replace", **how
            )
        )
        print(f"{len(samples):,} images of {len(samples.classes)} classes")
        train(samples, options)


if __name__ == "__main__":
    main()
