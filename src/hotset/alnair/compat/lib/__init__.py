"""``lib.AlnairJobDataset`` and ``lib.AlnairJobDataLoader``, beside what a script has in a directory ``lib`` of its own."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
