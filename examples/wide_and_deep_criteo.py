"""Wide & Deep on Criteo-like data: rows of a few large text files as shuffled samples, through `hotset.records`.

    python examples/wide_and_deep_criteo.py                       # makes its own tiny data
    python examples/wide_and_deep_criteo.py --uri s3://bucket/criteo/train/

A row is a label, 13 numbers and 26 categories (hexadecimal), separated by tabs; any field but the label may be empty.
Needs PyTorch (`pip install hotset[torch]`). Prints samples/s and the share of the time that training waited for data.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

import hotset

NUMBERS, CATEGORIES = 13, 26


def make_data(directory: Path, rows: int, files: int = 3) -> None:
    """Rows whose label depends on some numbers and some categories, so that there is something to learn."""
    rng = random.Random(0)
    for part in range(files):
        with (directory / f"day_{part}.tsv").open("w") as file:
            for _ in range(rows // files):
                numbers = [int(rng.expovariate(0.05)) for _ in range(NUMBERS)]
                categories = [rng.randrange(50) * 0x01F31D1 + column for column in range(CATEGORIES)]
                score = (numbers[0] - numbers[1]) / 20 + (categories[0] // 0x01F31D1 % 5 - 2)
                label = int(rng.random() < 1 / (1 + math.exp(-score)))
                fields = [*map(str, numbers), *(f"{category:08x}" for category in categories)]
                fields[rng.randrange(len(fields))] = ""
                file.write("\t".join([str(label), *fields]) + "\n")


class Rows:
    """Makes a batch out of rows: labels, numbers and, for each category, a row of the one table of embeddings."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    def __call__(self, rows: list[list[str]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        labels = [float(row[0]) for row in rows]
        numbers = [[float(field or 0) for field in row[1 : 1 + NUMBERS]] for row in rows]
        categories = [[int(field or "0", 16) for field in row[1 + NUMBERS :]] for row in rows]
        hashed = torch.tensor(categories) * 2_654_435_761 % self.buckets + torch.arange(CATEGORIES) * self.buckets
        return torch.tensor(labels), torch.tensor(numbers).clamp(min=0).log1p(), hashed


class WideAndDeep(nn.Module):
    """A linear model that remembers and a deep one that generalises, trained together (Cheng et al., 2016)."""

    def __init__(self, buckets: int, width: int = 8) -> None:
        super().__init__()
        self.wide = nn.EmbeddingBag(CATEGORIES * buckets, 1, mode="sum")
        self.wide_numbers = nn.Linear(NUMBERS, 1)
        self.embed = nn.Embedding(CATEGORIES * buckets, width)
        nn.init.zeros_(self.wide.weight)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.deep = nn.Sequential(
            nn.Linear(NUMBERS + CATEGORIES * width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        wide = self.wide(categories) + self.wide_numbers(numbers)
        deep = self.deep(torch.cat((numbers, self.embed(categories).flatten(1)), dim=1))
        return (wide + deep).squeeze(1)


def train(records: hotset.Records, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is small; the other cores are the workers'
    model = WideAndDeep(options.buckets)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    order = records.order(seed=1, window=options.window)
    for epoch in range(options.epochs):
        samples = order.epoch(epoch)
        records.prefetch(samples)  # absent stripes of the files are fetched in this order
        loader = DataLoader(
            records,
            batch_size=options.batch_size,
            sampler=samples.tolist(),
            num_workers=options.workers,
            drop_last=True,
            collate_fn=Rows(options.buckets),
        )
        if not len(loader):
            raise SystemExit(f"{len(records)} rows are less than a batch of {options.batch_size}")
        batches = iter(loader)
        batch = next(batches)  # which starts the workers: not counted
        seen, losses, waited = 0, [], 0.0
        started = time.perf_counter()
        steps = min(options.steps or len(loader), len(loader))
        for step in range(1, steps + 1):
            labels, numbers, categories = batch
            loss = nn.functional.binary_cross_entropy_with_logits(model(numbers, categories), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
            losses.append(loss.item())
            asked = time.perf_counter()
            batch = next(batches) if step < steps else None
            waited += time.perf_counter() - asked
        took = time.perf_counter() - started
        del batches  # ends the workers
        loss = sum(losses[-10:]) / len(losses[-10:])
        print(f"epoch {epoch}: loss {loss:.3f}, {seen / took:,.0f} samples/s, data stall {100 * waited / took:.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", help="where the data is; without it, a little is made")
    parser.add_argument("--rows", type=int, default=15_000, help="how much is made")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="batches of an epoch; all of them by default")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--buckets", type=int, default=1000, help="rows of each category's table of embeddings")
    parser.add_argument("--window", help="shuffle within so many bytes, e.g. 512MiB; by default all rows together")
    options = parser.parse_args()
    with ExitStack() as stack:
        how = {}
        if options.uri is None:
            made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hotset-criteo-")))
            (made / "data").mkdir()
            make_data(made / "data", options.rows)
            options.uri, how = str(made / "data"), {"cache": made / "cache", "quota": "1GiB"}
        records = stack.enter_context(hotset.records(options.uri, "csv", delimiter="\t", quote="", header=False, **how))
        print(f"{len(records):,} rows in {len(records.keys)} files")
        train(records, options)


if __name__ == "__main__":
    main()
