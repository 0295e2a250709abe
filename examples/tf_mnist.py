"""Digits in TensorFlow: a directory of PNGs for each class, as a shuffled `tf.data.Dataset`, through `hotset.tensorflow`.

    python examples/tf_mnist.py                                   # draws its own few digits
    python examples/tf_mnist.py --uri s3://bucket/mnist/train     # .../0/00001.png, .../1/00002.png, ...

Needs TensorFlow and Pillow (`pip install hotset[tensorflow] pillow`). Prints samples/s and the share of the time that training
waited for data.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported: warnings and errors only

import tensorflow as tf
from PIL import Image, ImageDraw, ImageFont

from hotset.tensorflow import dataset


def draw_digits(directory: Path, count: int) -> None:
    """PNGs of 28 by 28 grey pixels: a digit somewhere, and some noise."""
    rng = random.Random(0)
    font = ImageFont.load_default()
    for number in range(count):
        digit = str(number % 10)
        image = Image.new("L", (28, 28))
        image.putdata([rng.randrange(40) for _ in range(28 * 28)])
        drawn = Image.new("L", (8, 12))
        ImageDraw.Draw(drawn).text((1, 0), digit, fill=255, font=font)
        drawn = drawn.resize((16, 24))
        image.paste(drawn, (rng.randrange(4, 9), rng.randrange(1, 4)), drawn)
        path = directory / digit / f"{number:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)


def decode(data: tf.Tensor) -> tf.Tensor:
    """Runs in TensorFlow's own threads."""
    image = tf.io.decode_png(data, channels=1)
    return tf.ensure_shape(tf.cast(image, tf.float32) / 255, [28, 28, 1])


def make_model(classes: int) -> tf.keras.Model:
    model = tf.keras.Sequential(
        [
            tf.keras.Input([28, 28, 1]),
            tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(classes),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(3e-3), loss=loss)
    return model


def train(batches: tf.data.Dataset, epochs: int) -> None:
    """What `model.fit(batches, epochs=epochs)` does, with a clock."""
    tf.keras.utils.set_random_seed(0)
    model = make_model(len(batches.class_names))
    for epoch in range(epochs):  # each iteration of the dataset is the next epoch, shuffled anew
        samples, waited, loss = 0, 0.0, 0.0
        steps = iter(batches)
        images, labels = next(steps)
        if epoch == 0:
            model.train_on_batch(images, labels)  # compiles: not counted
            model.reset_metrics()
        started = time.perf_counter()
        while images is not None:
            loss = float(model.train_on_batch(images, labels))  # the mean of this epoch so far
            samples += len(images)
            asked = time.perf_counter()
            images, labels = next(steps, (None, None))
            waited += time.perf_counter() - asked
        took = time.perf_counter() - started
        model.reset_metrics()
        print(
            f"epoch {epoch}: loss {loss:.3f}, {samples / took:,.0f} samples/s, data stall {100 * waited / took:.1f} %"
        )
    stats = batches.feed.hot.stats()
    print(f"{stats.reads} reads, {100 * stats.hit_rate:.0f} % from the cache, {batches.feed.bad} bad samples")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", help="where the data is; without it, a little is made")
    parser.add_argument("--count", type=int, default=4000, help="how much is made")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hotset-mnist-") as made:
        how = {}
        if options.uri is None:
            draw_digits(Path(made) / "data", options.count)
            options.uri, how = f"{made}/data", {"cache": f"{made}/cache", "quota": "1GiB"}
        batches = dataset(
            options.uri, decode=decode, labels="directory", batch_size=options.batch_size, on_bad="skip", **how
        )
        print(f"{len(batches.feed.hot):,} objects, classes {', '.join(batches.class_names)}")
        train(batches, options.epochs)


if __name__ == "__main__":
    main()
