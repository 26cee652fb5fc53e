"""Output of commands: console, files, exit statuses."""
