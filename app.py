"""The front door of Amend: reads the options and opens the page or the terminal. See --help."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from assistant.options import Options, parse_options
from assistant.options_evaluate import EvaluateCommand, parse_evaluate
from steam_engine.errors import AmendError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run Amend. Returns the exit code: 2 when an option, or something on the disk, has to change first."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    work: Callable[[], int]
    if given[:1] == ["evaluate"]:
        work = partial(_evaluate, parse_evaluate(given[1:]))
    else:
        work = partial(_run, parse_options(given))
    try:
        return work()
    except AmendError as problem:
        print(f"amend: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("amend: stopped", file=sys.stderr)
        return 130


def _evaluate(command: EvaluateCommand) -> int:
    _starting()
    from assistant.evaluating import run_command

    run_command(command)
    return 0


def _starting() -> None:
    print("Starting ...", file=sys.stderr, flush=True)
    if not sys.stderr.isatty():  # bars that redraw themselves only make sense where somebody looks
        os.environ.setdefault("TQDM_DISABLE", "1")


def _run(options: Options) -> int:
    _starting()
    from assistant.startup import ready  # torch takes seconds to import; --help should not

    if options.mode == "serve":
        from assistant.page import serve
        from assistant.page_serve import listen

        listen(options.host, options.port).close()  # a taken port is told before the model is loaded

    with ready(options, lambda line: print(line, file=sys.stderr, flush=True)) as (assistant, workspace):
        if options.mode == "serve":
            serve(assistant, workspace.exports, options.host, options.port, options.open_browser, options.allowed_hosts)
        elif options.mode == "export":
            from assistant.terminal import export

            return 0 if export(assistant, *options.export) else 2
        elif options.mode == "import":
            from assistant.terminal import take_in

            assert options.journal is not None
            return 0 if take_in(assistant, options.journal, options.replace) else 2
        else:
            from assistant.terminal import chat

            chat(assistant, yes=options.yes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
