"""`dismix explore`: see and steer severity and appearance in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from dismix.cli.options import Device, Quiet


def explore(
    run: Annotated[Path, typer.Argument(help="Run folder of a trained generator.")],
    manifest: Annotated[
        Path | None, typer.Option(help="Images to choose from; the run's own if absent.")
    ] = None,
    grader: Annotated[
        Path | None, typer.Option(help="Run folder of a grader, to show its opinion.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine needs a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free one.", min=0, max=65535)] = 7860,
    password_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the password.")
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """See a run in the browser: move severity and appearance, look at every mix."""
    from dismix.errors import DisMixError
    from dismix.explore.server import check_address, read_password, serve

    password = None if password_file is None else read_password(password_file)
    check_address(host, password)
    from importlib.util import find_spec

    if find_spec("gradio") is None:
        raise DisMixError("the explorer needs Gradio", cure="pip install 'dismix[explore]'")
    from dismix.explore.opening import open_session
    from dismix.progress import bar

    with bar(quiet=quiet) as progress:
        session = open_session(
            run, manifest=manifest, grader=grader, device=device, progress=progress
        )

    def tell(address: str) -> None:
        typer.echo(f"{address}  (Ctrl+C ends it)")
        if session.library.note:
            typer.echo(session.library.note, err=True)
        if browser:
            import webbrowser

            webbrowser.open(address)

    serve(session, host=host, port=port, password=password, tell=tell)
