"""The command `dr-q`: parse, call, exit code."""

import dataclasses
import sys
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

import dr_q

USAGE_ERROR = 2


@dataclasses.dataclass
class Presets:
    """List the presets and what each changes from DR.Q."""

    def run(self) -> None:
        """Print the table."""
        from dr_q.agent import PRESETS, Config

        base = Config()
        table = Table("preset", "setting", "value", "dr.q", box=None, pad_edge=False)
        for name, changes in PRESETS.items():
            if not changes:
                table.add_row(name, "(none)", "", "")
            for i, (setting, value) in enumerate(changes.items()):
                table.add_row(name if i == 0 else "", setting, str(value), str(getattr(base, setting)))
        Console().print(table)


@dataclasses.dataclass
class Version:
    """Print the version."""

    def run(self) -> None:
        """Print it."""
        print(dr_q.__version__)


Command = Annotated[Presets, tyro.conf.subcommand("presets")] | Annotated[Version, tyro.conf.subcommand("version")]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; bad input gives one line and exit code 2."""
    from dr_q.agent import ConfigError

    command = tyro.cli(Command, prog="dr-q", description=dr_q.__doc__, args=arguments)
    try:
        command.run()
    except ConfigError as error:
        print(f"dr-q: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0
