"""The peers, one file each, behind the narrow interfaces of `bench.peers.base`."""

from __future__ import annotations

from bench.peers.base import Peer
from bench.peers.boto import Boto
from bench.peers.juicefs import JuiceFS
from bench.peers.litdata import LitData
from bench.peers.mosaicml import MosaicML
from bench.peers.plain import PlainFiles
from bench.peers.rclone import Rclone
from bench.peers.s3torch import S3TorchConnector
from bench.peers.webdataset import WebDataset

__all__ = ["PEERS"]

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        PlainFiles(),
        MosaicML(),
        WebDataset(),
        LitData(),
        S3TorchConnector(),
        S3TorchConnector(threads=16),
        Rclone(),
        JuiceFS(),
        Boto(),
    )
}
