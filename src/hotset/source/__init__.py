"""Where data comes from: a URI becomes a `Source` that lists objects and reads byte ranges of them.

Importing this package loads no cloud's library; `open_source` does, for the scheme it is given.
"""

from __future__ import annotations

from hotset.source.base import Buffer, Fingerprint, FingerprintKind, ObjectInfo, Source
from hotset.source.describe import Environment, check, describe_environment
from hotset.source.globs import key_beginnings, literal_pattern
from hotset.source.open import identify, open_source
from hotset.source.options import SourceOptions
from hotset.source.uri import Location, display_uri, known_schemes, parse_uri
from hotset.source.wrappers import CombinedSource, RateLimited, Retrying, filtered

__all__ = [
    "Buffer",
    "CombinedSource",
    "Environment",
    "Fingerprint",
    "FingerprintKind",
    "Location",
    "ObjectInfo",
    "RateLimited",
    "Retrying",
    "Source",
    "SourceOptions",
    "check",
    "describe_environment",
    "display_uri",
    "filtered",
    "identify",
    "key_beginnings",
    "known_schemes",
    "literal_pattern",
    "open_source",
    "parse_uri",
]
