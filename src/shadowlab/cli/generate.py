"""``shadowlab generate``: logs with known faults, for those who try the audit."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from shadowlab.cli.options import problems
from shadowlab.generate.cluster import generate, parse_faults
from shadowlab.generate.stories import FAULTS, FILE_FAULTS

_KINDS = f"of messages {', '.join(FAULTS)}; of files {', '.join(FILE_FAULTS)}"


@click.command("generate", epilog=f"Faults: {_KINDS}.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--messages", default=1000, show_default=True, type=click.IntRange(min=1), help="About five rows each."
)
@click.option(
    "--faults",
    default="",
    metavar="NAME[=COUNT],…",
    help="What goes wrong, and how often; once without a count. Nothing, unless asked for.",
)
@click.option("--seed", default=1, show_default=True, help="Same seed, same files.")
@click.option("--file-size", default=10_000_000, show_default=True, help="Octets of a file.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def generate_logs(
    directory: Path, messages: int, faults: str, seed: int, file_size: int, *, as_json: bool
) -> None:
    """Write logs of three nodes to DIRECTORY, with known faults; truth.json says what is to be found.

    DIRECTORY is new, or empty. Interrupted, or if something goes wrong, nothing is left in it.
    """
    with (
        problems("generate: interrupted; nothing of it is left"),
        Console(stderr=True).status(f"Writing {messages:,} messages"),
    ):
        try:
            wanted = parse_faults(faults)
            truth = generate(directory, messages=messages, faults=wanted, seed=seed, file_size=file_size)
        except ValueError as problem:
            raise click.UsageError(str(problem)) from None
        except OSError as problem:
            raise click.UsageError(f"{problem.filename}: {problem.strerror}") from None
    if as_json:
        told = truth.as_dict()
        del told["found"]
        print(json.dumps(told))
    else:
        print(f"{truth.messages:,} messages, {truth.rows:,} rows; the truth is in {directory / 'truth.json'}")
