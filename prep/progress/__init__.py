"""What a command reports: status lines, warnings, progress; how many processes and threads work."""
