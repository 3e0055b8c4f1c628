"""Commands that set up and look after an installation: install, uninstall, check, demo."""
