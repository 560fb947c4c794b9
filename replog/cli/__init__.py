"""The command `replog`: a module a sub-command, imported only when it runs."""
