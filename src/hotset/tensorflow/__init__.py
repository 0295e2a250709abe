"""hotset in TensorFlow: a `tf.data.Dataset` that tells ahead what it will read, and a directory for scripts that read files.

from hotset.tensorflow import dataset

train = dataset("s3://bucket/train", decode=to_image, labels="directory", batch_size=96)
model.fit(train, epochs=90)
"""

from hotset.tensorflow.feed import Feed
from hotset.tensorflow.files import files
from hotset.tensorflow.pipeline import dataset

__all__ = ["Feed", "dataset", "files"]
