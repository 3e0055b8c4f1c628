"""Commands that install, check and remove liqod: install, uninstall, check, demo."""
