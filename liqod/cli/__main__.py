"""``python -m liqod.cli`` is ``liqodctl`` of a checkout."""

from liqod.cli.main import main

main()
