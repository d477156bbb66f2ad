"""The command line: knows every command's name and module, and imports a command's module only to run it."""

import os
import signal
import sys
from typing import Any

import click

from flywheel import __version__
from flywheel.errors import FlywheelError
from flywheel.stages import stage

# name: (module, in a stage or in the core; what `flywheel --help` says)
COMMANDS = {
    "init": ("flywheel.commands.init", "Make a workspace."),
    "ask": ("collect.commands.ask", "Put one question to the team and watch it work."),
    "collect": ("collect.commands.collect", "Run the team over questions and record every model call."),
    "show": ("collect.trace_commands.show", "List rollouts, or print one as a tree."),
    "export": ("collect.trace_commands.export", "Write rollouts to JSON Lines, Parquet or a Hugging Face dataset."),
    "import": ("collect.trace_commands.import_", "Read exported rollouts, or another workspace's, into this one."),
    "select": ("train.commands.select", "Turn correct runs into training rows, and count what is dropped."),
    "audit": ("train.commands.audit", "Check the training rows, and show what is trained."),
    "train": ("train.commands.train", "Train one LoRA adapter per role."),
    "serve": ("serve.commands.serve", "Serve the base and all adapters over OpenAI's API."),
    "evaluate": ("flywheel.evaluation.commands.evaluate", "Compare teams on held-out questions."),
    "promote": ("flywheel.evaluation.commands.promote", "Make candidates active, if they were shown to be better."),
    "rollback": ("flywheel.evaluation.commands.rollback", "Make active again what was so before the last promotion."),
    "adapters": ("flywheel.evaluation.commands.adapters", "List adapter versions, their lineage and figures."),
    "report": ("flywheel.report.commands.report", "Write everything that happened as one HTML file."),
    "view": ("flywheel.report.commands.view", "Serve the report on this machine."),
    "turn": (
        "flywheel.commands.turn",
        "Turn the wheel: collect, select, audit, train, evaluate, and promote what is better.",
    ),
    "grade": ("flywheel.commands.grade", "Grade predictions against gold answers."),
    "demo": ("flywheel.commands.demo", "Turn the wheel once on the embedded model and encyclopedia."),
    "config": ("flywheel.commands.config", "Print every setting of a workspace."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names in the order of a turn of the wheel."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].rpartition(".")
        command: click.Command = getattr(stage(module), attribute)
        return command

    def resolve_command(self, context: click.Context, arguments: list[str]) -> Any:
        """As click does, with a hint for a mistyped name."""
        import difflib

        if arguments and arguments[0] not in COMMANDS:
            near = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
            context.fail(f"No such command {arguments[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flywheel")
@click.option(
    "-w", "--workspace", default=".", show_default=True, envvar="FLYWHEEL_WORKSPACE", help="Folder of the workspace."
)
@click.option("-o", "--option", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Change a setting once.")
@click.pass_context
def flywheel(context: click.Context, workspace: str, overrides: tuple[str, ...]) -> None:
    """Specialise a small local model for every role of an agent team, using only the team's own correct runs."""
    context.obj = {"workspace": workspace, "overrides": overrides}


def main() -> None:
    """Run a command; failures that have a name become one or two lines and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it with kill wants the same as Ctrl-C
    try:
        result = flywheel.main(standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except FlywheelError as error:
        click.echo(f"flywheel: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("flywheel: interrupted", err=True)
        # Threads may still be inside native code, which must not be torn down under them.
        sys.stdout.flush()
        os._exit(130)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        if os.environ.get("FLYWHEEL_DEBUG"):
            raise
        click.echo(f"flywheel: unexpected {type(error).__name__}: {error} (FLYWHEEL_DEBUG=1 shows where)", err=True)
        sys.exit(70)
