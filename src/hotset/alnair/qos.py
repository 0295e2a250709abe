"""A job's configurations ("qos"): one spelling and real types, whoever wrote them. Pure.

The operator writes Go's field names and typed values, or takes over a ConfigMap, in which every value is a string and the
keys are as somebody typed them. The text "false" must not be true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hotset.errors import InvalidInput

__all__ = ["LOCAL_QOS", "POD_QOS", "QoS", "normal_qos"]

QoS = dict[str, bool | int]

#: What an AlnairPod means that leaves its configurations out.
POD_QOS: QoS = {"UseCache": False, "MaxMemory": 0, "DurabilityInDisk": 0, "LazyLoading": False}
#: The same for a script that is tried without a pod, where the cache costs nobody anything.
LOCAL_QOS: QoS = {**POD_QOS, "UseCache": True}

_NAMES = {name.lower(): name for name in POD_QOS}
_BOOLEANS = {"true": True, "t": True, "1": True, "yes": True, "on": True}
_BOOLEANS |= {"false": False, "f": False, "0": False, "no": False, "off": False}


def normal_qos(given: object, *, where: str, strangers: bool = False) -> QoS:
    """What ``given`` says, under Go's names. ``where`` begins the message of `InvalidInput`.

    Names that are no configuration are passed over if ``strangers`` are allowed, as beside the others in a ConfigMap.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where}: configurations are names with values, not {type(given).__name__}")
    qos: QoS = {}
    for key, value in given.items():
        name = _NAMES.get(re.sub("[^a-z]", "", str(key).lower()))
        if name is None:
            if strangers:
                continue
            raise InvalidInput(f"{where}: there is no configuration {key!r}; known are {', '.join(_NAMES)}")
        qos[name] = (
            _boolean(value, f"{where}: {key}")
            if name in {"UseCache", "LazyLoading"}
            else _number(value, f"{where}: {key}")
        )
    return qos


def _boolean(value: object, where: str) -> bool:
    found = value if isinstance(value, bool) else _BOOLEANS.get(str(value).strip().lower())
    if found is None:
        raise InvalidInput(f"{where} is {value!r}, but true or false is expected")
    return found


def _number(value: object, where: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,18}", text, re.ASCII):
        raise InvalidInput(f"{where} is {value!r}, but a whole number from 0 on is expected")
    return int(text)
