"""A dictionary whose values are attributes as well."""

from __future__ import annotations

from typing import Any

__all__ = ["dotdict"]


class dotdict(dict[str, Any]):  # noqa: N801  (Alnair's name)
    """``info.jinfo.ccauth.host`` for ``info["jinfo"]["ccauth"]["host"]``. What is not there is None, as of `dict.get`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and pickling ask for methods that a dictionary does not have
            raise AttributeError(name)
        found = self.get(name)
        return dotdict(found) if isinstance(found, dict) and not isinstance(found, dotdict) else found

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None
