"""Puts the commands together, and turns whatever they raise into one line and an exit code."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import typer

from hotset.cli import cat, demo, doctor, drop, gc, load, ls, reload, show, snapshots, verify, view
from hotset.cli.options import AsJson, Debug
from hotset.cli.output import Output
from hotset.errors import HotsetError, InvalidInput

__all__ = ["COMMANDS", "build", "run"]

#: In the order of the help. Each module has a function of its own name, and EXAMPLES.
COMMANDS: tuple[ModuleType, ...] = (
    load, ls, show, reload, verify, view, cat, drop, snapshots, gc, doctor, demo,
)  # fmt: skip

INTERRUPTED = 130
_ABOUT = "Keep the datasets of deep-learning jobs hot: near the GPU, copied once, shared by every job."
_EXAMPLES = """\
hotset load s3://bucket/train        copy a dataset into the cache
hotset ls                            what is in the cache
hotset doctor s3://bucket/train      what is wrong, and how to mend it
hotset demo                          see what it brings, on this machine
hotset --install-completion          let the shell complete commands and names
"""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, 1 for a failure, 2 for a wrong use, 130 after Ctrl-C."""
    out = Output(
        as_json="--json" in arguments, debug="--debug" in arguments
    )  # also where nothing was parsed to the end
    try:
        code = typer.main.get_command(build()).main(list(arguments), prog_name="hotset", standalone_mode=False)
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:  # those that typer raises for a wrong use have no public base class
        explain = getattr(error, "format_message", None)
        if explain is None:
            raise
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "hotset"
        wrong = InvalidInput(f"{explain().rstrip('.')}; see `{where} --help`")
        out.fail(wrong.with_traceback(error.__traceback__))
        return int(getattr(error, "exit_code", wrong.exit_code))
    return code if isinstance(code, int) else 0


def build() -> typer.Typer:
    """The application: what typer needs to parse, help and complete."""
    app = typer.Typer(
        help=_ABOUT, epilog=_examples(_EXAMPLES), rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback(invoke_without_command=True)(_root)
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        app.command(name, epilog=_examples(module.EXAMPLES))(_entry(getattr(module, name)))
    return app


def _root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        from hotset import __version__

        print(f"hotset {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def _examples(text: str) -> str:
    # \b: typer leaves the lines as they are.
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in text.strip().splitlines())


def _entry(command: Callable[..., int | None]) -> Callable[..., None]:
    """What typer calls: the command with ``--json`` and ``--debug`` added and its `Output` made of them."""
    hints = get_type_hints(command, include_extras=True)
    given = list(inspect.signature(command).parameters.values())[1:]
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in given]
    for name, kind in (("as_json", AsJson), ("debug", Debug)):
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind))

    def entry(*, as_json: bool, debug: bool, **values: Any) -> None:
        out = Output(as_json=as_json, debug=debug)
        raise typer.Exit(_guarded(out, partial(command, out, **values)))

    entry.__doc__ = command.__doc__
    entry.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    entry.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what `inspect.signature` reads
    return entry


def _guarded(out: Output, action: Callable[[], int | None]) -> int:
    try:
        code = action() or 0
        sys.stdout.flush()
    except HotsetError as error:
        out.fail(error)
        return error.exit_code
    except KeyboardInterrupt as stop:
        out.fail(stop, str(stop) or "interrupted")
        return _leave(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has enough of it (`hotset cat ... | head`). The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:  # noqa: BLE001  (the border of the program: a sentence, and a traceback on demand)
        out.fail(error, f"{type(error).__name__}: {error} (this was not foreseen; --debug shows where it comes from)")
        return 1
    return code


def _leave(code: int) -> int:
    """End at once where threads still wait for a server; what they were doing is safe to be cut off at any moment."""
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
