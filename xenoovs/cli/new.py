"""`xenoovs new`: a config from a template."""

from __future__ import annotations

import click


@click.command("new")
@click.argument("template", required=False, metavar="[TEMPLATE]")
def command(template: str | None) -> None:
    """Print the config TEMPLATE; without a name, list the templates.

    \b
    Example:
      xenoovs new quickstart > my.yaml
    """
    from xenoovs.config.templates import read_template, template_names

    names = template_names()
    if template is None:
        click.echo("\n".join(names))
        return
    if template not in names:
        raise click.UsageError(f"There is no template {template!r}; there are: {', '.join(names)}.")
    click.echo(read_template(template), nl=False)
