"""The options of commands that run pods: the image, and how long a pod may take."""

from __future__ import annotations

from typing import Any, Final

import click

from liqod.cli.console.options import timeout_option

IMAGE: Final = "docker.io/library/busybox:1.36"


def image_options(command: Any) -> Any:
    """Add --image and --timeout."""
    image = click.option("--image", default=IMAGE, show_default=True, help="Image with busybox, for all clusters.")
    return image(timeout_option(120.0, "Timeout for each pod.", click.FloatRange(1, 1200))(command))
