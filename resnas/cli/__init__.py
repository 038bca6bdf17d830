"""The command line: options in, one call into the library, tables or one clear sentence out.

Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted. Commands import what they need when they run, so that
`--help` is fast.
"""

from __future__ import annotations

import os
import sys
import traceback

from resnas.cli.app import app
from resnas.errors import ResnasError
from resnas.passwords import without_passwords


def main() -> None:
    """Run the command line."""
    sys.path.insert(0, os.getcwd())  # where the user's own topologies and tasks lie
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        app()
    except ResnasError as error:
        _end(str(error), error.exit_code, debug)
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        _end(f"unexpected {type(error).__name__}: {error} (--debug shows where)", 1, debug)


def _end(sentence: str, exit_code: int, debug: bool) -> None:
    """Say why it ends; the traceback only where it was asked for."""
    if debug:
        print(without_passwords(traceback.format_exc()), file=sys.stderr)
    print(f"resnas: {without_passwords(sentence)}", file=sys.stderr)
    sys.exit(exit_code)
