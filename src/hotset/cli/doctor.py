"""`hotset doctor`: is everything as it must be, and if not, what mends it."""

from __future__ import annotations

from typing import Annotated

import typer

from hotset.cli.options import Anonymous, Endpoint, Profile, Region, RequesterPays
from hotset.cli.output import Output
from hotset.cli.text import plural, table

__all__ = ["EXAMPLES", "doctor"]

EXAMPLES = """\
hotset doctor
hotset doctor s3://bucket/train                  (can it be listed and read?)
"""

_MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG"}


def doctor(
    out: Output,
    uri: Annotated[str | None, typer.Argument(help="A source to try.")] = None,
    *,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    requester_pays: RequesterPays = False,
    profile: Profile = None,
) -> int:
    """Say what is wrong, and what mends it.

    Looks at environment variables, the cache directory, memory and system limits, the datasets in the cache and, with a
    URI, at endpoint, credentials and access. The exit code is 1 if something is wrong.
    """
    from hotset.cli import checks
    from hotset.cli.fill import attended
    from hotset.config.settings import Settings, environment
    from hotset.source import SourceOptions

    env = environment()
    findings = [*checks.versions(), *checks.variables(env)]
    broken = {name for name in env if any(found.state == "wrong" and name in found.text for found in findings)}
    settings = Settings.of({name: value for name, value in env.items() if name not in broken})
    for look in (checks.cache, checks.memory, checks.limits, checks.runtime, checks.datasets):
        findings += look(settings)
    if uri is not None:
        options = SourceOptions(
            endpoint=endpoint, region=region, anonymous=anonymous, requester_pays=requester_pays, profile=profile
        )
        findings += attended(lambda: list(checks.source(uri, options, env)), lambda: None)
    wrong = sum(found.state == "wrong" for found in findings)
    rows = []
    for found in findings:
        rows.append((_MARKS[found.state], found.subject, found.text))
        if found.remedy:
            rows.append(("", "", f"-> {found.remedy}"))
    verdict = f"{plural(wrong, 'thing')} to mend" if wrong else "nothing is wrong"
    document = {"wrong": wrong, "findings": [found.encoded() for found in findings]}
    out.result(document, f"{table(('STATE', 'WHAT', ''), rows)}\n\n{verdict}")
    return 1 if wrong else 0
