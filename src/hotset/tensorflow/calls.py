"""Calls of Python from a graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hotset.errors import Closed

__all__ = ["call"]


def call(method: Callable[..., Any], arguments: Sequence[Any], types: Any) -> Any:
    """A call of a method, with arrays for tensors of ``types``, in the graph that is being made.

    TensorFlow keeps what a graph calls for as long as the process lives, and with it a dataset, its maps and its filler. So it
    gets a function that does not keep the method's object: others do, since all that is made of a `tf.data.Dataset`, iterators
    too, refers to it.
    """
    reference = weakref.WeakMethod(method)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def function(*values: Any) -> Any:
        alive = reference()
        if alive is None:
            raise Closed("the tf.data.Dataset that this was made of is gone: keep a reference to it")
        return alive(*values)

    return tf.numpy_function(function, arguments, types)
