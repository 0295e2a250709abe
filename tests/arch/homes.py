"""An import-linter contract: each third-party library has a home, and a new one is given a home before it is used.

The contract types that import-linter ships ask for a list of the modules that may *not* import a library; a package
that is added later would be missing from it. This one lists the homes instead, so forgetting something fails.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class HomesContract(Contract):
    """Options: ``homes``, a list of ``"library -> module module ..."``, and ``anywhere``, a list of libraries."""

    homes = fields.ListField(subfield=fields.StringField())
    anywhere = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        homes = {library: modules.split() for library, _, modules in (line.partition(" -> ") for line in self.homes)}
        strangers = []
        for library in sorted(graph.modules):
            if not graph.is_module_squashed(library):
                continue  # one of ours
            if library in sys.stdlib_module_names or library in self.anywhere:
                continue
            strangers += [
                (importer, library, detail["line_number"])
                for importer in sorted(graph.find_modules_that_directly_import(library))
                if not any(importer == home or importer.startswith(f"{home}.") for home in homes.get(library, ()))
                for detail in graph.get_import_details(importer=importer, imported=library)
            ]
        return ContractCheck(kept=not strangers, metadata={"strangers": strangers, "homes": homes})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, library, line in check.metadata["strangers"]:
            homes = check.metadata["homes"].get(library)
            where = f"lives in {' and '.join(homes)}" if homes else "has no home yet (pyproject.toml)"
            output.print_error(f"{importer}:{line} imports {library}, which {where}")
